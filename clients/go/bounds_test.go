package wormhole

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

func frame(kind any) *wirev1.PublisherFrame {
	switch kind := kind.(type) {
	case *wirev1.Part:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Part{Part: kind}}
	case *wirev1.DataLoss:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_DataLoss{DataLoss: kind}}
	case *wirev1.ShardNotice:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Notice{Notice: kind}}
	case *wirev1.ChunkEnd:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_ChunkEnd{ChunkEnd: kind}}
	case *wirev1.ScanEnd:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_ScanEnd{ScanEnd: kind}}
	case *wirev1.SchemaFrame:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Schema{Schema: kind}}
	case *wirev1.Batch:
		return &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Batch{Batch: kind}}
	default:
		panic("unknown")
	}
}

// testSession is a session after Hello, with its accounts.
func testSession(t *testing.T, change ...func(*session)) (*session, time.Time) {
	t.Helper()
	now := time.Unix(1000, 0)
	s := session{
		application: "app", subscriber: "s1", maxFrame: 1 << 20, maxBody: 4096, peer: &peer{},
		admits: func([]string, string) error { return nil },
		state:  newBudget(1<<20, "state").open("a", func(error) {}),
		large:  newBudget(8192, "large").open("a", func(error) {}),
	}
	for _, change := range change {
		change(&s)
	}
	made := newSession(s, now)
	if events := receive(t, made, now, helloFrame()); len(events) != 1 || events[0] != (welcomed{}) {
		t.Fatalf("got %v", events)
	}
	return made, now
}

func receive(t *testing.T, s *session, now time.Time, frames ...*wirev1.PublisherFrame) []event {
	t.Helper()
	data, err := proto.Marshal(&wirev1.PublisherMessage{Frames: frames})
	if err != nil {
		t.Fatal(err)
	}
	return s.receive(data, now)
}

// sent returns what the session sends now.
func sent(t *testing.T, s *session, now time.Time) []*wirev1.SubscriberFrame {
	t.Helper()
	data, err := s.takeOutput(now)
	if err != nil {
		t.Fatal(err)
	}
	message := &wirev1.SubscriberMessage{}
	if err := proto.Unmarshal(data, message); err != nil {
		t.Fatal(err)
	}
	return message.Frames
}

// withFlow is a session with an open flow, of 100 bytes of credit.
func withFlow(t *testing.T, change ...func(*session)) (*session, time.Time) {
	t.Helper()
	s, now := testSession(t, change...)
	receive(t, s, now, assignFrame(1, func(a *wirev1.Assign) { a.Generation = 1 }), schemaFrame(users))
	s.accept(s.flows[1], 100, Datamarker{}, 0)
	sent(t, s, now)
	return s, now
}

func batchOf(number uint64, size int) *wirev1.Batch {
	return &wirev1.Batch{Flow: 1, Epoch: 1, Number: number, Body: make([]byte, size)}
}

func partOf(index uint32, last bool, total uint64, size int) *wirev1.Part {
	return &wirev1.Part{Flow: 1, Epoch: 1, Number: 1, Index: index, Last: last, TotalBytes: total, Data: make([]byte, size)}
}

func TestABreachOfTheProtocolEndsTheStream(t *testing.T) {
	long := strings.Repeat("x", longestText+1)
	table := []*wirev1.RowKey{{Table: "users", Values: []*wirev1.Value{{Kind: &wirev1.Value_Text{Text: "a"}}}}}
	for name, test := range map[string]struct {
		frames []*wirev1.PublisherFrame
		field  string
	}{
		"a second hello":     {[]*wirev1.PublisherFrame{helloFrame()}, "hello"},
		"an unknown frame":   {[]*wirev1.PublisherFrame{{}}, "PublisherFrame.kind"},
		"a hole":             {[]*wirev1.PublisherFrame{frame(batchOf(2, 10))}, "batch.number"},
		"an empty body":      {[]*wirev1.PublisherFrame{frame(batchOf(1, 0))}, "batch.body"},
		"a huge body":        {[]*wirev1.PublisherFrame{frame(batchOf(1, 4097))}, "batch.body"},
		"over the credit":    {[]*wirev1.PublisherFrame{frame(batchOf(1, 60)), frame(batchOf(2, 60))}, "batch.body"},
		"an unknown flow":    {[]*wirev1.PublisherFrame{frame(&wirev1.Batch{Flow: 9, Epoch: 1})}, "batch.flow"},
		"a later epoch":      {[]*wirev1.PublisherFrame{frame(&wirev1.Batch{Flow: 1, Epoch: 2})}, "batch.epoch"},
		"parts that begin":   {[]*wirev1.PublisherFrame{frame(partOf(1, false, 20, 10))}, "part.index"},
		"parts with a hole":  {[]*wirev1.PublisherFrame{frame(partOf(0, false, 20, 5)), frame(partOf(2, true, 20, 5))}, "part.index"},
		"parts of a size":    {[]*wirev1.PublisherFrame{frame(partOf(0, false, 20, 5)), frame(partOf(1, true, 21, 5))}, "part.total_bytes"},
		"parts too short":    {[]*wirev1.PublisherFrame{frame(partOf(0, true, 20, 5))}, "part.data"},
		"parts too long":     {[]*wirev1.PublisherFrame{frame(partOf(0, false, 20, 25))}, "part.data"},
		"an empty part":      {[]*wirev1.PublisherFrame{frame(partOf(0, false, 20, 0))}, "part.data"},
		"amid parts":         {[]*wirev1.PublisherFrame{frame(partOf(0, false, 20, 5)), markerFrame(1, 1)}, "datamarker.flow"},
		"no kind of notice":  {[]*wirev1.PublisherFrame{frame(&wirev1.ShardNotice{Flow: 1, Epoch: 1})}, "notice.kind"},
		"no kind of loss":    {[]*wirev1.PublisherFrame{frame(&wirev1.DataLoss{Flow: 1, Epoch: 1})}, "data_loss.kind"},
		"a schema's id":      {[]*wirev1.PublisherFrame{frame(&wirev1.SchemaFrame{Id: 1, Canonical: users.canonical})}, "schema.id"},
		"a schema's form":    {[]*wirev1.PublisherFrame{frame(&wirev1.SchemaFrame{Id: 1, Canonical: []byte{0x22, 0}})}, "schema.canonical"},
		"an unknown schema":  {[]*wirev1.PublisherFrame{frame(&wirev1.ChunkEnd{Flow: 1, Epoch: 1, Schema: 5})}, "chunk_end.schema"},
		"a key of no type":   {[]*wirev1.PublisherFrame{frame(&wirev1.ChunkEnd{Flow: 1, Epoch: 1, Schema: users.id, Alone: table})}, "chunk_end.alone"},
		"another generation": {[]*wirev1.PublisherFrame{frame(&wirev1.ScanEnd{Flow: 1, Epoch: 1, Table: "users", Generation: 2})}, "scan_end.generation"},
		"a long table":       {[]*wirev1.PublisherFrame{frame(&wirev1.ScanEnd{Flow: 1, Epoch: 1, Table: long + long, Generation: 1})}, "scan_end.table"},
		"an epoch":           {[]*wirev1.PublisherFrame{assignFrame(1<<63 - 1)}, "assign.epoch"},
		"an earlier epoch":   {[]*wirev1.PublisherFrame{assignFrame(1)}, "assign.epoch"},
		"another shard":      {[]*wirev1.PublisherFrame{assignFrame(2, func(a *wirev1.Assign) { a.Shard = "b" })}, "assign.flow"},
		"no place":           {[]*wirev1.PublisherFrame{assignFrame(2, func(a *wirev1.Assign) { a.Marker = nil })}, "assign.marker"},
		"a rolled back text": {[]*wirev1.PublisherFrame{assignFrame(2, func(a *wirev1.Assign) { a.RolledBack = long })}, "assign.rolled_back"},
		"a verification":     {[]*wirev1.PublisherFrame{assignFrame(2, func(a *wirev1.Assign) { a.Verify = 1 })}, "assign.verify"},
		"a large backfill": {[]*wirev1.PublisherFrame{assignFrame(2, func(a *wirev1.Assign) {
			a.Marker.Backfill = make([]byte, mostBackfill+1)
		})}, "assign.marker"},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := withFlow(t)
			receive(t, s, now, test.frames...)
			frames := sent(t, s, now)
			if len(frames) == 0 {
				t.Fatal("nothing was sent")
			}
			goodbye := frames[len(frames)-1].GetGoodbye()
			if goodbye.GetReason() != wirev1.Goodbye_PROTOCOL || !strings.Contains(goodbye.GetMessage(), test.field) {
				t.Errorf("sent %v", frames)
			}
			if !s.isClosed || len(receive(t, s, now, markerFrame(1, 1))) != 0 {
				t.Error("the stream goes on")
			}
		})
	}
}

func TestAMessageThatIsTooLargeOrDamagedEndsTheStream(t *testing.T) {
	for name, data := range map[string][]byte{"large": make([]byte, 1<<20+1), "damaged": {0x0a, 0x05}} {
		s, now := withFlow(t)
		s.receive(data, now)
		if frames := sent(t, s, now); len(frames) != 1 || frames[0].GetGoodbye().GetReason() != wirev1.Goodbye_PROTOCOL {
			t.Errorf("%s: sent %v", name, frames)
		}
	}
}

func TestBeforeAcceptedNothingMayCome(t *testing.T) {
	s, now := testSession(t)
	receive(t, s, now, assignFrame(1), markerFrame(1, 1))
	if !s.isClosed {
		t.Error("the stream goes on")
	}
}

func TestLateFramesAreDropped(t *testing.T) {
	s, now := withFlow(t)
	receive(t, s, now, revokeFrame(1), markerFrame(1, 1))
	s.release(s.flows[1], Datamarker{})
	receive(t, s, now, markerFrame(1, 2))
	if s.isClosed || s.dropped != 2 {
		t.Errorf("closed %t, dropped %d", s.isClosed, s.dropped)
	}
}

func TestABodyOverTheCreditComesAloneAndIsCounted(t *testing.T) {
	s, now := withFlow(t)
	receive(t, s, now, frame(batchOf(1, 4000)))
	if s.large.held != 3900 {
		t.Errorf("%d bytes are counted", s.large.held)
	}
	if !s.progress(s.flows[1], 1) || s.large.held != 0 {
		t.Errorf("%d bytes are counted", s.large.held)
	}
	s.large.budget.limit = 1000
	receive(t, s, now, frame(batchOf(2, 4000)))
	frames := sent(t, s, now)
	if failed := frames[len(frames)-1].GetFailed(); failed.GetReason() != wirev1.Failed_RESEND {
		t.Errorf("sent %v", frames)
	}
}

func TestAPublisherCannotFillTheMemory(t *testing.T) {
	flood := map[string]func(i int) *wirev1.PublisherFrame{
		"datamarkers": func(i int) *wirev1.PublisherFrame { return markerFrame(1, uint64(i)) },
		"notices": func(int) *wirev1.PublisherFrame {
			return frame(&wirev1.ShardNotice{Flow: 1, Epoch: 1, Kind: wirev1.ShardNotice_REPLAY_BEGIN})
		},
		"flows": func(i int) *wirev1.PublisherFrame {
			return assignFrame(1, func(a *wirev1.Assign) { a.Flow, a.Shard = uint32(i+2), strings.Repeat("x", i%1000+1) })
		},
		"schemas": func(i int) *wirev1.PublisherFrame {
			return schemaFrame(NewSchema(strings.Repeat("t", i+1), nil, nil))
		},
	}
	for name, next := range flood {
		t.Run(name, func(t *testing.T) {
			s, now := withFlow(t)
			for i := range 20_000 {
				if receive(t, s, now, next(i)); s.isClosed {
					return
				}
				if s.state.budget.used > s.state.budget.limit {
					t.Fatalf("%d bytes are used", s.state.budget.used)
				}
			}
			t.Error("the stream goes on")
		})
	}
}

func TestAcknowledgedDatamarkersAreNotCountedAnyMore(t *testing.T) {
	s, now := withFlow(t)
	before := s.state.held
	receive(t, s, now, markerFrame(1, 1), markerFrame(1, 2))
	s.ack(s.flows[1], Datamarker{marker(1)})
	s.ack(s.flows[1], Datamarker{marker(2)})
	if s.state.held != before {
		t.Errorf("%d bytes are counted, before %d", s.state.held, before)
	}
	if frames := sent(t, s, now); len(frames) != 1 || frames[0].GetAck().GetMarker().GetOrder().GetOffset() != 2 {
		t.Errorf("sent %v", frames)
	}
}

func TestThePublisherThatUsesTheMostLosesItsStream(t *testing.T) {
	b := newBudget(100, "state")
	ended := make(chan error, 1)
	large := b.open("large", func(err error) { ended <- err })
	small := b.open("small", func(error) { t.Error("the other one ends") })
	if err := large.charge(90, "it"); err != nil {
		t.Fatal(err)
	}
	if err := small.charge(20, "it"); err != nil {
		t.Fatal(err)
	}
	<-ended
	if b.used != 20 {
		t.Errorf("%d bytes are used", b.used)
	}
	if err := small.charge(90, "it"); err == nil || b.used != 20 {
		t.Errorf("%v, %d bytes are used", err, b.used)
	}
}

func TestSilenceIsNoticedWithinThreeHeartbeats(t *testing.T) {
	s, now := withFlow(t)
	s.heartbeat = time.Second
	if s.tick(now.Add(time.Second)); sent(t, s, now)[0].GetHeartbeat().GetNumber() != 1 {
		t.Error("no heartbeat was sent")
	}
	events := s.tick(now.Add(3 * time.Second))
	if len(events) != 1 || !s.isClosed {
		t.Errorf("got %v", events)
	}
}

func TestAConnectionWithoutHelloEnds(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSession(session{peer: &peer{}}, now)
	if !s.deadline().Equal(now.Add(helloTimeout)) {
		t.Errorf("deadline %v", s.deadline())
	}
	s.tick(now.Add(helloTimeout))
	if !s.isClosed {
		t.Error("it stays open")
	}
}

func TestAPublisherOfAnotherVersionOrAddressIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*wirev1.Hello)
		reason wirev1.Goodbye_Reason
	}{
		"an older one":        {func(h *wirev1.Hello) { h.MinVersion, h.MaxVersion = 1, 2 }, wirev1.Goodbye_VERSION},
		"a newer one":         {func(h *wirev1.Hello) { h.MinVersion, h.MaxVersion = 4, 9 }, wirev1.Goodbye_VERSION},
		"another application": {func(h *wirev1.Hello) { h.Application = "b" }, wirev1.Goodbye_WRONG_ADDRESS},
		"another subscriber":  {func(h *wirev1.Hello) { h.Subscriber = "b" }, wirev1.Goodbye_WRONG_ADDRESS},
		"no heartbeat":        {func(h *wirev1.Hello) { h.HeartbeatMs = 0 }, wirev1.Goodbye_PROTOCOL},
		"a long name":         {func(h *wirev1.Hello) { h.Copy = strings.Repeat("x", 1001) }, wirev1.Goodbye_PROTOCOL},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			s := newSession(session{
				application: "app", subscriber: "s1", maxFrame: 1 << 20, peer: &peer{},
				admits: func([]string, string) error { return nil },
			}, now)
			hello := helloFrame()
			test.change(hello.GetHello())
			receive(t, s, now, hello)
			if frames := sent(t, s, now); len(frames) != 1 || frames[0].GetGoodbye().GetReason() != test.reason {
				t.Errorf("sent %v", frames)
			}
		})
	}
}

func TestAPublisherThatDoesNotReadLosesItsStream(t *testing.T) {
	s, now := withFlow(t)
	for range unreadFrames + 1 {
		s.decideLoss(s.flows[1], true)
	}
	receive(t, s, now, markerFrame(1, 1))
	if !s.isClosed {
		t.Error("the stream goes on")
	}
}
