package wormhole

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	firstRedial   = 50 * time.Millisecond
	longestRedial = 5 * time.Second
	steady        = 10 * time.Second // after which a connection counts as one that works
	keepAddress   = 30 * time.Second // how long an address belongs to the publisher that was connected there last
	dialTimeout   = 10 * time.Second
)

// keepConnected has one connection after the other to an address, until this process leaves.
func (c *client) keepConnected(ctx context.Context, address string) {
	failures, said := 0, ""
	var at met
	for c.stopping.Err() == nil {
		began := time.Now()
		accepted, err := c.connect(ctx, address, &at)
		if accepted && time.Since(began) >= steady {
			failures = 0
		}
		failures++
		text := ""
		if !accepted && err != nil {
			if text = err.Error(); text != said { // the same is logged once
				c.log.Warn("a publisher is dialled again", "address", address, "error", err)
			}
			c.notifyRefused(err)
		}
		said = text
		longest := min(longestRedial, firstRedial<<min(failures, 16))
		select {
		case <-time.After(longest/2 + rand.N(longest/2)): // spread, so that all do not come back at once
		case <-c.stopping.Done():
		}
	}
}

// met is the publisher that was connected at an address, and until when. Behind a balancer of several publishers
// another one may answer, and the shards of the first would be served by none.
type met struct {
	publisher string // empty: none was, or it stopped
	until     time.Time
}

func (m *met) expected() string {
	if time.Since(m.until) >= keepAddress {
		return ""
	}
	return m.publisher
}

func (m *met) ended(s *session) {
	m.publisher, m.until = withoutProcess(s.peer.name), time.Now()
	if s.left {
		m.publisher = ""
	}
}

// connect has one connection. It returns whether the publisher was accepted, and why the connection ended.
func (c *client) connect(ctx context.Context, address string, at *met) (accepted bool, err error) {
	transport := insecure.NewCredentials()
	var shown atomic.Pointer[[]string] // the names of the publisher's certificate
	shown.Store(new([]string))
	if c.options.TLS != nil {
		transport = credentials.NewTLS(c.tlsConfig(&shown))
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(transport),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, err = c.withMetadata(ctx)
	if err != nil {
		return false, err
	}
	late := time.AfterFunc(dialTimeout, cancel)
	untilOpen := context.AfterFunc(c.stopping, cancel)
	defer untilOpen()
	call, err := conn.NewStream(ctx, &wirev1.Publisher_ServiceDesc.Streams[0], wirev1.Publisher_Attach_FullMethodName,
		grpc.ForceCodecV2(rawCodec{}),
		// A little more than is permitted, so that a message that is too large gets an answer.
		grpc.MaxCallRecvMsgSize(2*c.options.MaxFrame),
	)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return false, c.refusalOf(address, err, nil)
	}
	s := openStream(c, call, cancel, address, at.expected(), *shown.Load())
	if !untilOpen() || !c.add(s) {
		return false, nil
	}
	defer c.remove(s)
	if accepted, err = s.run(); accepted {
		at.ended(s.session)
	}
	return accepted, c.refusalOf(address, err, call.Trailer())
}

func (c *client) withMetadata(ctx context.Context) (context.Context, error) {
	pairs := []string{
		"wormhole-application-bin", c.options.Application,
		"wormhole-subscriber-bin", c.options.ID,
		"wormhole-instance", c.instance,
		"wormhole-weight", strconv.FormatFloat(c.options.Weight, 'f', -1, 64),
	}
	if c.options.Token != nil {
		token, err := c.options.Token(ctx)
		if err != nil {
			return ctx, fmt.Errorf("the token cannot be read: %w", err)
		}
		pairs = append(pairs, "wormhole-token", strings.TrimSpace(token))
	}
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(pairs...)), nil
}

// RefusedError is why a publisher cannot be used: it refused this process, or was refused. It is dialled again, because
// that may pass.
type RefusedError struct {
	Address string
	Code    string // of the publisher's problem, or the status of gRPC in lower case, such as unavailable
	Message string
	Hint    string // the next step; empty if the publisher named none
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s: %s [%s]", e.Address, e.Message, e.Code)
	if e.Hint != "" {
		text += ". Next: " + e.Hint
	}
	return text
}

// refusalOf returns nil for a stream that the publisher ended without an error.
func (c *client) refusalOf(address string, err error, trailer metadata.MD) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	var ours *RefusedError
	if errors.As(err, &ours) {
		ours.Address = address
		return ours
	}
	s := status.Convert(err)
	refused := &RefusedError{Address: address, Code: statusName(s.Code()), Message: shortened(s.Message())}
	if codes := trailer.Get("wormhole-code"); len(codes) > 0 {
		refused.Code = shortened(codes[0])
		refused.Message = strings.TrimSuffix(refused.Message, " ["+refused.Code+"]")
	}
	if hints := trailer.Get("wormhole-hint-bin"); len(hints) > 0 {
		refused.Hint = shortened(hints[0])
		refused.Message = strings.TrimSuffix(refused.Message, ". Next: "+refused.Hint)
	}
	return refused
}

// statusName returns a status as gRPC's other implementations write it, in lower case.
func statusName(code codes.Code) string {
	var name strings.Builder
	for i, letter := range code.String() {
		if i > 0 && unicode.IsUpper(letter) && code != codes.OK {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(letter))
	}
	return name.String()
}

// notifyRefused calls the handler if the publisher refused this process, or was refused. The network is not meant.
func (c *client) notifyRefused(err error) {
	var refused *RefusedError
	handler, ok := c.handler.(RefusedHandler)
	if ok && errors.As(err, &refused) && refused.Code != statusName(codes.Unavailable) &&
		refused.Code != statusName(codes.Canceled) {
		handler.OnRefused(c.hard, refused)
	}
}

// --- certificates ---

// tlsConfig returns a configuration that checks the publisher's certificate before anything is said, also this
// process's own certificate. A publisher is known by a name of its certificate, whatever address was dialled. The names
// are stored in shown.
func (c *client) tlsConfig(shown *atomic.Pointer[[]string]) *tls.Config {
	config := c.options.TLS.Clone()
	verifyToo := config.VerifyConnection
	config.MinVersion = max(config.MinVersion, tls.VersionTLS13) // in earlier versions a server sees our certificate first
	config.InsecureSkipVerify = true                             // what follows replaces it
	config.VerifyConnection = func(state tls.ConnectionState) error {
		leaf := state.PeerCertificates[0]
		options := x509.VerifyOptions{
			Roots:         config.RootCAs,
			Intermediates: x509.NewCertPool(),
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		if config.Time != nil {
			options.CurrentTime = config.Time()
		}
		for _, intermediate := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(intermediate)
		}
		if _, err := leaf.Verify(options); err != nil {
			return err
		}
		names := slices.Concat(leaf.DNSNames, []string{leaf.Subject.CommonName})
		if err := c.admitsCertificate(names); err != nil {
			return err
		}
		shown.Store(&names)
		if verifyToo != nil {
			return verifyToo(state)
		}
		return nil
	}
	return config
}

func (c *client) admitsCertificate(names []string) error {
	known := func(entry string) bool { return slices.Contains(names, nameOf(entry)) }
	if slices.ContainsFunc(c.options.Publishers, known) {
		return nil
	}
	return fmt.Errorf("the publisher's certificate has the names %q, and Publishers are %q", names, c.options.Publishers)
}

// admits returns an error unless a publisher with these names may push the dataset.
func (c *client) admits(names []string, dataset string) error {
	if len(c.options.Publishers) == 0 {
		return nil
	}
	for _, entry := range c.options.Publishers {
		of, _, isOfOne := strings.Cut(entry, "=")
		if slices.Contains(names, nameOf(entry)) && (!isOfOne || of == dataset) {
			return nil
		}
	}
	return fmt.Errorf("a publisher with the names %q may not push dataset %q here", names, dataset)
}

// nameOf returns the name in an entry of Publishers: NAME or DATASET=NAME.
func nameOf(entry string) string { return entry[strings.LastIndexByte(entry, '=')+1:] }
