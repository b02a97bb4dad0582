package wormhole

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	progressPause = 50 * time.Millisecond // least time between two messages that only report progress
	closePause    = time.Second           // how long a publisher may take to end a stream after the goodbye
)

// rawCodec passes messages as bytes, because the frames of one are parsed one by one.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// stream is one connection to a publisher: a goroutine that always reads, and one that writes and keeps the time. The
// goroutines of its workers answer through a [port].
type stream struct {
	client *client
	peer   *peer
	conn   grpc.ClientStream
	cancel context.CancelFunc

	kick chan struct{} // something has to be sent, or the stream is over
	read chan struct{} // closed when nothing more arrives

	mu      sync.Mutex
	session *session
	workers map[uint32]*worker
	cause   error // why reading ended
	soon    *time.Timer
}

// openStream begins a stream on an open call. label: the publisher's address.
// expected: see [session].
func openStream(
	c *client, conn grpc.ClientStream, cancel context.CancelFunc, label, expected string, certificate []string,
) *stream {
	s := &stream{
		client:  c,
		peer:    &peer{name: label, certificate: certificate},
		conn:    conn,
		cancel:  cancel,
		kick:    make(chan struct{}, 1),
		read:    make(chan struct{}),
		workers: make(map[uint32]*worker),
	}
	owner := label
	if len(certificate) > 0 {
		owner = fmt.Sprint(certificate)
	}
	_, takesRanges := c.handler.(ChunkEndHandler)
	s.session = newSession(session{
		application: c.options.Application,
		subscriber:  c.options.ID,
		takesRanges: takesRanges,
		maxFrame:    c.options.MaxFrame,
		maxBody:     2 * uint64(c.options.MaxUpdate),
		admits:      c.admits,
		peer:        s.peer,
		expected:    expected,
		state:       c.state.open(owner, s.refuse),
		large:       c.large.open(owner, s.refuse),
	}, time.Now())
	if err := s.session.state.charge(streamBytes, "a stream"); err != nil {
		s.refuse(err)
	}
	return s
}

// run works until either side has ended the stream. It returns whether the publisher was accepted, and why it ended.
func (s *stream) run() (welcomed bool, err error) {
	go s.readAll()
	s.writeAll()
	s.lost("the connection to the publisher ended")
	_ = s.conn.CloseSend()
	select {
	case <-s.read:
	case <-time.After(closePause): // a call that is cancelled may lose the goodbye
	}
	s.cancel()
	<-s.read
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session.refused != nil {
		return false, s.session.refused
	}
	return s.session.heartbeat != 0, s.cause
}

func (s *stream) readAll() {
	defer close(s.read)
	for {
		var data []byte
		err := s.conn.RecvMsg(&data)
		if err != nil {
			s.mu.Lock()
			s.cause = err
			s.mu.Unlock()
			if errors.Is(err, io.EOF) {
				s.lost("the publisher ended the stream")
			} else {
				s.lost("the connection to the publisher broke")
			}
			return
		}
		s.mu.Lock()
		events := s.session.receive(data, time.Now())
		s.wakeUp(len(s.session.out.frames) > 0 || s.session.isClosed)
		s.mu.Unlock()
		for _, event := range events {
			s.handle(event)
		}
	}
}

func (s *stream) writeAll() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		data, err := s.output()
		if err != nil {
			s.client.log.Error("a message cannot be made", "publisher", s.peer.name, "error", err)
			return
		}
		if data != nil {
			if s.send(data) != nil {
				return
			}
			continue
		}
		s.mu.Lock()
		isClosed, deadline := s.session.isClosed, s.session.deadline()
		s.mu.Unlock()
		if isClosed {
			return
		}
		timer.Reset(time.Until(deadline))
		select {
		case <-s.kick:
		case <-timer.C:
			s.mu.Lock()
			events := s.session.tick(time.Now())
			s.mu.Unlock()
			for _, event := range events {
				s.handle(event)
			}
		}
	}
}

// output returns the next message; nil if nothing has to be sent.
func (s *stream) output() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.soon != nil {
		s.soon.Stop()
		s.soon = nil
	}
	now := time.Now()
	if s.session.reportDue(now) {
		for number, w := range s.workers {
			if f := s.session.has(number, w.assigned.Epoch); f != nil && f.phase == phaseOpen {
				s.session.report(f, w.report())
			}
		}
	}
	return s.session.takeOutput(now)
}

// send writes one message. A publisher that neither reads nor closes must not keep the stream, and its flows, for ever.
func (s *stream) send(data []byte) error {
	s.mu.Lock()
	limit := s.session.silenceLimit()
	s.mu.Unlock()
	timer := time.AfterFunc(limit, s.cancel)
	defer timer.Stop()
	return s.conn.SendMsg(data)
}

// wakeUp has the waiting frames sent. s.mu is held.
func (s *stream) wakeUp(something bool) {
	if !something {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// wakeUpSoon waits for more, so that one message answers several. s.mu is held.
func (s *stream) wakeUpSoon() {
	if s.soon == nil {
		s.soon = time.AfterFunc(progressPause, func() { s.wakeUp(true) })
	}
}

func (s *stream) handle(event event) {
	log := s.client.log.With("publisher", s.peer.name)
	switch event := event.(type) {
	case welcomed:
		log.Info("a publisher is connected", "log", s.peer.log)
	case *assignment:
		s.assign(event)
	case closed:
		if event.expected {
			log.Info("the stream ends", "cause", event.cause)
		} else {
			log.Warn("the stream ends", "cause", event.cause)
		}
		s.lost(event.cause)
	case arrived:
		if w := s.workerOf(event.flow); w != nil {
			w.feed(event.item)
		}
	case parkAnswered:
		if w := s.workerOf(event.flow); w != nil {
			w.answered(event.update, event.refused)
		}
	case revoked:
		s.revoke(event)
	}
}

func (s *stream) workerOf(flow uint32) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[flow]
}

func (s *stream) assign(a *assignment) {
	w, err := s.client.shards.assign(port{s, a.Flow, a.Epoch}, a)
	if err != nil { // it makes this process keep too much
		s.refuse(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, a.Flow)
	if w == nil {
		return
	}
	if s.session.isClosed {
		w.end(lost, "the stream ended")
		return
	}
	s.workers[a.Flow] = w
}

// revoke has the flow released once no callback of it runs. A flow that was refused is released at once.
func (s *stream) revoke(event revoked) {
	s.mu.Lock()
	w := s.workers[event.flow]
	delete(s.workers, event.flow)
	f := s.session.flows[event.flow]
	s.mu.Unlock()
	if f != nil && (w == nil || !w.end(taken, event.cause)) {
		releaseAfter(w, port{s, event.flow, f.epoch})
	}
}

// refuse ends the stream, with the reason.
func (s *stream) refuse(err error) {
	s.mu.Lock()
	if s.session.isClosed {
		s.mu.Unlock()
		return
	}
	event := s.session.refuse(err)
	s.wakeUp(true)
	s.mu.Unlock()
	s.handle(event)
}

// leave says goodbye: every flow was released.
func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.session.isClosed {
		s.session.goodbye(wirev1.Goodbye_LEAVING, "this subscriber leaves", "")
		s.wakeUp(true)
	}
}

// lost ends the flows of a stream that is over: running callbacks finish, everything else is dropped.
func (s *stream) lost(cause string) {
	s.mu.Lock()
	s.session.end()
	s.session.state.close()
	s.session.large.close()
	workers := s.workers
	s.workers = make(map[uint32]*worker)
	s.wakeUp(true)
	s.mu.Unlock()
	for _, w := range workers {
		w.end(lost, cause)
	}
}

// port carries the answers of one epoch of a flow. They are dropped once the epoch or the stream is over.
type port struct {
	stream *stream
	flow   uint32
	epoch  uint64
}

// answer returns whether the answer was taken to be sent.
func (p port) answer(say func(s *session, f *flow)) bool {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.session.has(p.flow, p.epoch)
	if f == nil {
		return false
	}
	say(s.session, f)
	s.wakeUp(true)
	return true
}

func (p port) progress(number uint64) {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.session.has(p.flow, p.epoch)
	if f == nil {
		return
	}
	if s.session.progress(f, number) {
		s.wakeUp(true)
	} else {
		s.wakeUpSoon()
	}
}

func (p port) release(marker Datamarker) {
	p.answer(func(s *session, f *flow) { s.release(f, marker) })
}

func (p port) fail(reason wirev1.Failed_Reason, update, message string, held *held) {
	p.answer(func(s *session, f *flow) { s.fail(f, reason, update, message, held) })
}

func (p port) refuse(err error) {
	s := p.stream
	s.mu.Lock()
	alive := s.session.has(p.flow, p.epoch) != nil
	s.mu.Unlock()
	if alive {
		s.refuse(err)
	}
}

// schema returns a schema that arrived on the stream; nil if none did.
func (p port) schema(id uint64) *Schema {
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	return p.stream.session.schemas[id]
}
