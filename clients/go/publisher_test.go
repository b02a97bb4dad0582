package wormhole

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const patience = 20 * time.Second

// users is the schema of the worked example in docs/wire.md.
var users = NewSchema("users", []Column{{"id", "int"}}, []Column{{"name", "text"}})

// fakePublisher serves Attach on loopback. A test plays the publisher on each connection.
type fakePublisher struct {
	wirev1.UnimplementedPublisherServer
	t       *testing.T
	address string
	calls   chan *call
}

// call is one stream of a subscriber.
type call struct {
	t      *testing.T
	stream grpc.BidiStreamingServer[wirev1.SubscriberMessage, wirev1.PublisherMessage]
	end    chan error
	frames chan *wirev1.SubscriberFrame // closed when the subscriber ends the stream
}

func newFakePublisher(t *testing.T, options ...grpc.ServerOption) *fakePublisher {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePublisher{t: t, address: listener.Addr().String(), calls: make(chan *call)}
	server := grpc.NewServer(options...)
	wirev1.RegisterPublisherServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return p
}

func (p *fakePublisher) Attach(stream grpc.BidiStreamingServer[wirev1.SubscriberMessage, wirev1.PublisherMessage]) error {
	c := &call{p.t, stream, make(chan error, 1), make(chan *wirev1.SubscriberFrame, 1000)}
	go func() {
		defer close(c.frames)
		for {
			message, err := stream.Recv()
			if err != nil {
				select {
				case c.end <- nil:
				default:
				}
				return
			}
			for _, frame := range message.Frames {
				c.frames <- frame
			}
		}
	}()
	select {
	case p.calls <- c:
	case <-stream.Context().Done():
		return nil
	}
	select {
	case err := <-c.end:
		return err
	case <-stream.Context().Done():
		return nil
	}
}

// accept returns the next connection.
func (p *fakePublisher) accept() *call {
	p.t.Helper()
	select {
	case c := <-p.calls:
		return c
	case <-time.After(patience):
		p.t.Fatal("no subscriber dialled")
		return nil
	}
}

// hello accepts a connection, and begins it.
func (p *fakePublisher) hello() *call {
	p.t.Helper()
	c := p.accept()
	c.send(helloFrame())
	want[*wirev1.SubscriberFrame_Welcome](c)
	return c
}

func (c *call) metadata(key string) []string {
	md, _ := metadata.FromIncomingContext(c.stream.Context())
	return md.Get(key)
}

func (c *call) send(frames ...*wirev1.PublisherFrame) {
	c.t.Helper()
	if err := c.stream.Send(&wirev1.PublisherMessage{Frames: frames}); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next frame but heartbeats and reports; nil if the subscriber ended the stream.
func (c *call) next() *wirev1.SubscriberFrame {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case frame := <-c.frames:
			if frame.GetHeartbeat() == nil && frame.GetReport() == nil {
				return frame
			}
		case <-deadline:
			c.t.Fatal("no frame came")
		}
	}
}

// want returns the next frame, which is of this kind.
func want[K any](c *call) K {
	c.t.Helper()
	frame := c.next()
	kind, ok := any(frame.GetKind()).(K)
	if !ok {
		c.t.Fatalf("got %v, want %T", frame, kind)
	}
	return kind
}

func (c *call) wantGoodbye(reason wirev1.Goodbye_Reason) *wirev1.Goodbye {
	c.t.Helper()
	goodbye := want[*wirev1.SubscriberFrame_Goodbye](c).Goodbye
	if goodbye.Reason != reason {
		c.t.Fatalf("got %v, want %v", goodbye, reason)
	}
	return goodbye
}

// --- frames ---

func helloFrame() *wirev1.PublisherFrame {
	return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Hello{Hello: &wirev1.Hello{
		MinVersion: 3, MaxVersion: 3, Publisher: "shop/main/db1", Dataset: "shop", Log: "db1", Application: "app",
		HeartbeatMs: 60_000, MaxFrameBytes: 4 << 20, Owner: "owner-1",
	}}}
}

func marker(offset uint64) *wirev1.Datamarker {
	return &wirev1.Datamarker{Order: &wirev1.Position{Incarnation: 1, File: 1, Offset: offset}}
}

func assignFrame(epoch uint64, change ...func(*wirev1.Assign)) *wirev1.PublisherFrame {
	assign := &wirev1.Assign{Flow: 1, Epoch: epoch, Application: "app", Shard: "s", Marker: marker(0)}
	for _, change := range change {
		change(assign)
	}
	return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Assign{Assign: assign}}
}

func schemaFrame(schema *Schema) *wirev1.PublisherFrame {
	return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Schema{
		Schema: &wirev1.SchemaFrame{Id: schema.id, Canonical: schema.canonical},
	}}
}

func markerFrame(epoch, offset uint64) *wirev1.PublisherFrame {
	return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Datamarker{
		Datamarker: &wirev1.DatamarkerFrame{Flow: 1, Epoch: epoch, Marker: marker(offset)},
	}}
}

func revokeFrame(epoch uint64) *wirev1.PublisherFrame {
	return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Revoke{Revoke: &wirev1.Revoke{Flow: 1, Epoch: epoch}}}
}

func insertOf(id int64, name string) []byte {
	update, err := proto.Marshal(&wirev1.Update{
		Op:    wirev1.Op_INSERT,
		Key:   []*wirev1.Value{{Kind: &wirev1.Value_Int{Int: id}}},
		After: []*wirev1.Value{{Kind: &wirev1.Value_Text{Text: name}}},
	})
	if err != nil {
		panic(err)
	}
	return update
}

// bodyOf has one transaction for each update, numbered from first on.
func bodyOf(first uint64, updates ...[]byte) *wirev1.BatchBody {
	body := &wirev1.BatchBody{
		Updates: updates, SchemaIds: []uint64{users.id}, Sources: []string{"db1"}, Incarnation: 1,
		TxFile: []uint64{1}, TxCommittedAtUs: []int64{1_700_000_000_000_000},
	}
	for i := range updates {
		number := first + uint64(i)
		body.TxNumber = append(body.TxNumber, number)
		body.TxOffset = append(body.TxOffset, number)
		body.TxEnd = append(body.TxEnd, uint32(i+1))
	}
	return body
}

func bytesOf(body *wirev1.BatchBody) []byte {
	data, err := proto.Marshal(body)
	if err != nil {
		panic(err)
	}
	return data
}

func batchFrame(epoch, number uint64, body *wirev1.BatchBody) *wirev1.PublisherFrame {
	unfinished := len(body.TxEnd) < len(body.TxNumber)
	return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Batch{Batch: &wirev1.Batch{
		Flow: 1, Epoch: epoch, Number: number, Body: bytesOf(body), Unfinished: unfinished,
	}}}
}

// --- the subscriber ---

// recorder is a handler of all callbacks. It sends what it sees on a channel.
type recorder struct {
	seen     chan any
	onUpdate func(ctx context.Context, u *Update) error
	kept     *Kept
	decision LossDecision
}

func newRecorder() *recorder { return &recorder{seen: make(chan any, 10_000)} }

func (r *recorder) OnUpdate(ctx context.Context, u *Update) error {
	r.seen <- u
	if r.onUpdate != nil {
		return r.onUpdate(ctx, u)
	}
	return nil
}

func (r *recorder) OnDatamarker(_ context.Context, _ string, m Datamarker) error {
	r.seen <- m
	return nil
}

func (r *recorder) OnAssigned(_ context.Context, a Assigned) (*Kept, error) {
	r.seen <- a
	return r.kept, nil
}

func (r *recorder) OnRevoked(_ context.Context, revoked Revoked) error {
	r.seen <- revoked
	return nil
}

func (r *recorder) OnDataLoss(_ context.Context, loss DataLoss) (LossDecision, error) {
	r.seen <- loss
	return r.decision, nil
}

func (r *recorder) OnReplay(_ context.Context, replay Replay) error {
	r.seen <- replay
	return nil
}

func (r *recorder) OnChunkEnd(_ context.Context, keys KeyRange) error {
	r.seen <- keys
	return nil
}

func (r *recorder) OnScanEnd(_ context.Context, end ScanEnd) error {
	r.seen <- end
	return nil
}

func (r *recorder) OnHalted(_ context.Context, halted Halted) { r.seen <- halted }

func (r *recorder) OnRefused(_ context.Context, refused *RefusedError) { r.seen <- refused }

// see returns the next thing that a handler saw, which is of this type.
func see[T any](t *testing.T, r *recorder) T {
	t.Helper()
	select {
	case next := <-r.seen:
		seen, ok := next.(T)
		if !ok {
			t.Fatalf("the handler saw %T %v, want %T", next, next, seen)
		}
		return seen
	case <-time.After(patience):
		t.Fatal("the handler saw nothing")
		panic("unreachable")
	}
}

// running starts a subscriber of the publisher. The result stops it, and returns what Run returned.
func running(t *testing.T, p *fakePublisher, handler Handler, change ...func(*Subscriber)) (stop func() error) {
	t.Helper()
	s := &Subscriber{
		Application: "app", ID: "s1", Dial: []string{p.address}, Handler: handler,
		Retry:  RetryPolicy{Attempts: 3, FirstWait: time.Millisecond, LongestWait: time.Millisecond},
		Logger: testLogger(t),
	}
	for _, change := range change {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	done := false
	stop = func() error {
		cancel()
		select {
		case err := <-result:
			done = true
			return err
		case <-time.After(patience):
			t.Fatal("Run does not return")
			return nil
		}
	}
	t.Cleanup(func() {
		if !done {
			_ = stop()
		}
	})
	return stop
}
