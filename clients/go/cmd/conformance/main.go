// Command conformance is the client process of docs/conformance.md: it reads cases from standard input, runs a
// subscriber for each, and prints what the subscriber's handler saw.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	wormhole "wormhole-pubsub/clients/go"
)

const longestWait = 10 // in multiples of the first wait

// line is a line of standard input: a case, or what happens in one.
type line struct {
	Resume bool `json:"resume"`
	Stop   bool `json:"stop"`

	Case        string          `json:"case"`
	Dial        string          `json:"dial"`
	Second      string          `json:"second"`
	Application string          `json:"application"`
	ID          string          `json:"id"`
	TLS         *files          `json:"tls"`
	Token       string          `json:"token"`
	MaxAttempts int             `json:"max_attempts"`
	FirstWaitMs int64           `json:"first_wait_ms"`
	Credit      int             `json:"credit"`
	MaxFrame    int             `json:"max_frame"`
	MaxBody     int             `json:"max_body"`
	Handler     map[string]*act `json:"handler"`
	Have        map[string]kept `json:"have"`
	DataLoss    string          `json:"data_loss"`
}

type files struct {
	Cert, Key, CA, Publisher string
}

// act is what the handler does with an update.
type act struct {
	Do    string `json:"do"`
	Times *int   `json:"times"`
}

type kept struct {
	Marker []byte  `json:"marker"`
	Move   *uint64 `json:"move"`
}

// running is the subscriber of a case.
type running struct {
	app    *application
	cancel context.CancelFunc
	done   chan error
}

func main() {
	if err := run(os.Stdin, &printer{out: os.Stdout}); err != nil {
		log.Fatal(err)
	}
}

func run(in io.Reader, out *printer) error {
	lines := json.NewDecoder(in)
	var now *running
	for {
		var next line
		if err := lines.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch {
		case next.Case != "":
			var err error
			if now, err = begin(&next, out); err != nil {
				return fmt.Errorf("case %s: %w", next.Case, err)
			}
		case now == nil: // the case ended meanwhile
		case next.Resume:
			now.app.resume()
		case next.Stop:
			now.app.resume()
			now.cancel()
			if err := <-now.done; err != nil {
				log.Print(err)
			}
			out.print("end", nil)
			now = nil
		}
	}
}

func begin(c *line, out *printer) (*running, error) {
	subscriber := &wormhole.Subscriber{
		Application: c.Application,
		ID:          c.ID,
		Dial:        []string{c.Dial},
		StateOnly:   true,
		Credit:      c.Credit,
		MaxFrame:    c.MaxFrame,
		MaxUpdate:   c.MaxBody / 2,
		Retry: wormhole.RetryPolicy{
			Attempts:    c.MaxAttempts,
			FirstWait:   time.Duration(c.FirstWaitMs) * time.Millisecond,
			LongestWait: longestWait * time.Duration(c.FirstWaitMs) * time.Millisecond,
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if c.Second != "" {
		subscriber.Dial = append(subscriber.Dial, c.Second)
	}
	if c.Token != "" {
		subscriber.Token = wormhole.StaticToken(c.Token)
	}
	if c.TLS != nil {
		config, err := c.TLS.config()
		if err != nil {
			return nil, err
		}
		subscriber.TLS, subscriber.Publishers = config, []string{c.TLS.Publisher}
	}
	app := &application{line: c, out: out, hanging: make(chan struct{}), epochs: make(map[string]uint64)}
	subscriber.Handler = app
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{app: app, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- subscriber.Run(ctx) }()
	return r, nil
}

func (f *files) config() (*tls.Config, error) {
	authority, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", f.CA)
	}
	if f.Cert != "" {
		certificate, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// printer writes events, each as one line.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

type fields map[string]any

func (p *printer) print(event string, with fields) {
	if with == nil {
		with = fields{}
	}
	with["event"] = event
	data, err := json.Marshal(with)
	if err != nil {
		log.Fatal(err) // every value is of a type that can be written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.out.Write(append(data, '\n')); err != nil {
		log.Fatal(err)
	}
}
