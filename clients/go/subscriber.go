package wormhole

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	leastFrame   = 4096
	longestName  = 255 // characters of the application and the id
	goodbyePause = 5 * time.Second
)

// Subscriber receives the updates of one application. The zero values of optional fields have sensible meanings.
// A Subscriber must not be changed while it runs.
type Subscriber struct {
	// Application is the name of the application in the publishers' configuration.
	Application string
	// ID is the name of this process within the application: one process at a time may have it. Empty: host name and
	// process id. Give it one that a restart keeps, so that the updates that it parked come to it again.
	ID string
	// Dial has the addresses (host:port) of all publishers of the application's dataset. A balancer may stand before
	// one of them, and never before several.
	Dial []string
	// Handler processes the updates.
	Handler Handler

	// TLS has the trusted authorities (RootCAs) and, unless a Token is used, the certificate of this process. nil: no
	// TLS, which is permitted on loopback only, unless Insecure is set.
	TLS *tls.Config
	// Publishers, needed with TLS, names the certificates of the publishers: "NAME", or "DATASET=NAME" for one that may
	// push that dataset only. This process says nothing to a server whose certificate has none of these names.
	Publishers []string
	// Token returns the token of the application, each time that a publisher is dialled. nil: no token is sent.
	Token func(ctx context.Context) (string, error)
	// Insecure permits publishers beyond loopback without TLS.
	Insecure bool

	// Weight is the share of the shards, relative to other processes. 0: 1.
	Weight float64
	// StateOnly says that the handler's effects depend on the last state of a row only, so that a replay may leave out
	// earlier changes of a key.
	StateOnly bool

	// Transactional says that the handler's effects become durable at datamarkers only, for example because it commits in
	// OnDatamarker. After a failed callback OnRollback undoes them, and everything since the last datamarker is delivered
	// again in a new epoch. The handler has to be a RollbackHandler. Otherwise only the callback that failed is called
	// again.
	Transactional bool

	// HandlerTimeout is how long one callback may take until its context is cancelled. 0: 30 s. It must not be longer
	// than the publishers' handler_timeout.
	HandlerTimeout time.Duration
	// StopTimeout is how long a graceful stop may wait for running callbacks. 0: 25 s.
	StopTimeout time.Duration
	// Retry says how often a failed callback is called again.
	Retry RetryPolicy

	// Credit is how many bytes of updates of one shard may be unprocessed in this process. 0: 4 MiB. An update that is
	// larger comes alone.
	Credit int
	// Buffer is the same for all shards together. 0: 64 MiB.
	Buffer int
	// MaxFrame is the largest message that is accepted. 0: 4 MiB.
	MaxFrame int
	// MaxUpdate is the largest update that is accepted. 0: 64 MiB, as publishers send it.
	MaxUpdate int
	// MaxState bounds the other memory that publishers may make this process use: shards, schemas, datamarkers. 0:
	// 64 MiB.
	MaxState int

	// Logger gets what happens. nil: slog.Default().
	Logger *slog.Logger
}

// Run receives updates until ctx is cancelled. Then no new callback begins, running ones may end, every shard is
// released with its last datamarker, and the publishers are told. Run returns nil if that was done within StopTimeout.
// Errors of publishers are logged, and the publishers dialled again.
func (s *Subscriber) Run(ctx context.Context) error {
	c, err := newClient(*s)
	if err != nil {
		return err
	}
	return c.run(ctx)
}

// StaticToken returns a Token that is always the same.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// TokenFile returns a Token that is read from a file each time, so that it can be replaced without a restart.
func TokenFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		data, err := os.ReadFile(path)
		return string(data), err
	}
}

// withDefaults returns the options with every default, or the reasons why they cannot be used.
func (s Subscriber) withDefaults() (Subscriber, error) {
	if s.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			return s, fmt.Errorf("wormhole: ID is missing, and the host has no name: %w", err)
		}
		s.ID = host + "-" + strconv.Itoa(os.Getpid())
	}
	s.Weight = cmp.Or(s.Weight, 1)
	s.HandlerTimeout = cmp.Or(s.HandlerTimeout, 30*time.Second)
	s.StopTimeout = cmp.Or(s.StopTimeout, 25*time.Second)
	s.Credit = cmp.Or(s.Credit, 4<<20)
	s.Buffer = cmp.Or(s.Buffer, 64<<20)
	s.MaxFrame = cmp.Or(s.MaxFrame, 4<<20)
	s.MaxUpdate = cmp.Or(s.MaxUpdate, 64<<20)
	s.MaxState = cmp.Or(s.MaxState, 64<<20)
	s.Retry = s.Retry.withDefaults()
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	return s, s.check()
}

func (s *Subscriber) check() error {
	var problems []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("wormhole: "+format, args...))
		}
	}
	for name, text := range map[string]string{"Application": s.Application, "ID": s.ID} {
		length := utf8.RuneCountInString(text)
		need(0 < length && length <= longestName && utf8.ValidString(text), "%s has 1 to %d characters", name, longestName)
	}
	need(s.Handler != nil, "Handler is missing")
	_, rollsBack := s.Handler.(RollbackHandler)
	need(!s.Transactional || rollsBack, "Transactional: the handler has no OnRollback")
	need(len(s.Dial) > 0, "Dial is empty: it lists every publisher of the dataset")
	for _, address := range s.Dial {
		host, port, err := net.SplitHostPort(address)
		need(err == nil && host != "" && port != "", "Dial: %q is no host:port", address)
		need(s.TLS != nil || s.Insecure || isLoopback(host),
			"Dial: %q: without TLS every update could be read and forged on the way; set TLS, or Insecure", address)
		need(s.TLS != nil || s.Token == nil || isLoopback(host), "Token: it is sent to %q with TLS only", address)
	}
	need((s.TLS == nil) == (len(s.Publishers) == 0), "TLS and Publishers are set together")
	need(s.TLS == nil || s.TLS.RootCAs != nil, "TLS.RootCAs is missing: name the authority of the publishers")
	need(s.HandlerTimeout > 0 && s.StopTimeout > 0, "HandlerTimeout and StopTimeout are positive")
	need(s.Retry.Attempts > 0 && s.Retry.FirstWait >= 0 && s.Retry.LongestWait >= 0, "Retry has positive numbers")
	need(s.Credit > 0 && s.Buffer > 0 && s.MaxUpdate > 0 && s.MaxState > 0, "Credit and the other sizes are positive")
	need(s.MaxFrame >= leastFrame, "MaxFrame: publishers need at least %d", leastFrame)
	need(s.Weight > 0, "Weight is positive")
	return errors.Join(problems...)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// client is a running subscriber.
type client struct {
	options  Subscriber
	handler  Handler
	log      *slog.Logger
	instance string // random: distinguishes this process from another one with its id
	hard     context.Context
	cancel   context.CancelFunc // of hard: running callbacks have to end
	state    *budget
	large    *budget
	shards   *shards

	stopping context.Context // no connection is made any more
	stop     context.CancelFunc
	mu       sync.Mutex
	streams  map[*stream]struct{}
}

func newClient(s Subscriber) (*client, error) {
	s, err := s.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &client{
		options:  s,
		handler:  s.Handler,
		log:      s.Logger.With("application", s.Application),
		instance: rand.Text(),
		state:    newBudget(s.MaxState, "flows, schemas, datamarkers and lists"),
		large:    newBudget(4*s.MaxUpdate, "batches over their credit"),
		streams:  make(map[*stream]struct{}),
	}
	c.hard, c.cancel = context.WithCancel(context.Background())
	c.stopping, c.stop = context.WithCancel(context.Background())
	c.shards = newShards(c)
	return c, nil
}

func (c *client) run(ctx context.Context) error {
	defer c.cancel()
	defer c.stop()
	dialling, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	var connections sync.WaitGroup
	for _, address := range c.options.Dial {
		connections.Add(1)
		go func() {
			defer connections.Done()
			c.keepConnected(dialling, address)
		}()
	}
	<-ctx.Done()
	inTime := c.shards.leave(c.options.StopTimeout)
	c.cancel()
	c.mu.Lock()
	c.stop()
	for s := range c.streams {
		s.leave()
	}
	c.mu.Unlock()
	timer := time.AfterFunc(goodbyePause, hangUp)
	defer timer.Stop()
	connections.Wait()
	if !inTime {
		return fmt.Errorf("wormhole: callbacks did not end within %s: their updates come again", c.options.StopTimeout)
	}
	return nil
}

// add registers a stream that has to say goodbye. It returns false if this process leaves already.
func (c *client) add(s *stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping.Err() != nil {
		return false
	}
	c.streams[s] = struct{}{}
	return true
}

func (c *client) remove(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s)
}
