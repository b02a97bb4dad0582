package wormhole

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// opened has a subscriber with one flow, whose Accepted was sent.
func opened(t *testing.T, handler Handler, change ...func(*wirev1.Assign)) (*call, func() error) {
	t.Helper()
	p := newFakePublisher(t)
	stop := running(t, p, handler)
	c := p.hello()
	c.send(assignFrame(1, change...), schemaFrame(users))
	want[*wirev1.SubscriberFrame_Accepted](c)
	return c, stop
}

func TestUpdatesAreDeliveredAndAcknowledged(t *testing.T) {
	r := newRecorder()
	c, stop := opened(t, r)
	for key, value := range map[string]string{
		"wormhole-application-bin": "app", "wormhole-subscriber-bin": "s1", "wormhole-weight": "1",
	} {
		if got := c.metadata(key); len(got) != 1 || got[0] != value {
			t.Errorf("metadata %s is %q, want %q", key, got, value)
		}
	}
	if a := see[Assigned](t, r); a.Dataset != "shop" || a.Log != "db1" || a.Shard != "s" || a.Epoch != 1 {
		t.Errorf("assigned %+v", a)
	}
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(7, "ada"), insertOf(8, "eve"))), markerFrame(1, 2))
	first, second := see[*Update](t, r), see[*Update](t, r)
	if first.ID() != "db1:1:0" || second.ID() != "db1:2:0" || !first.EndsTransaction {
		t.Errorf("got %v and %v", first, second)
	}
	if first.Key[0].Int() != 7 || first.After.Get("name").Text() != "ada" || first.Before.Exists() {
		t.Errorf("got the row %v", first.After)
	}
	if m := see[Datamarker](t, r); m.Order().Offset != 2 {
		t.Errorf("got the datamarker %v", m)
	}
	ack, progress := false, false
	for !ack || !progress {
		switch kind := c.next().Kind.(type) {
		case *wirev1.SubscriberFrame_Ack:
			ack = proto.Equal(kind.Ack.Marker, marker(2))
		case *wirev1.SubscriberFrame_Progress:
			progress = kind.Progress.Number == 1
		}
	}
	if err := stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	released := want[*wirev1.SubscriberFrame_Released](c).Released
	if !proto.Equal(released.Marker, marker(2)) {
		t.Errorf("released with %v", released.Marker)
	}
	c.wantGoodbye(wirev1.Goodbye_LEAVING)
	see[Revoked](t, r)
}

func TestAFailedUpdateIsDeliveredAgain(t *testing.T) {
	r := newRecorder()
	fails := 2
	r.onUpdate = func(_ context.Context, u *Update) error {
		if u.Key[0].Int() == 2 && fails > 0 {
			fails--
			return errors.New("not now")
		}
		return nil
	}
	c, _ := opened(t, r)
	see[Assigned](t, r)
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"), insertOf(2, "b"), insertOf(3, "c"))), markerFrame(1, 3))
	for _, key := range []int64{1, 2, 2, 2, 3} {
		if u := see[*Update](t, r); u.Key[0].Int() != key {
			t.Fatalf("got %v, want %d", u, key)
		}
	}
	see[Datamarker](t, r)
}

func TestAnUpdateThatFailsForEverHaltsTheShard(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		calls int
	}{
		"until the retries are exhausted": {errors.New("never"), 3},
		"at once if it is permanent":      {Permanent(errors.New("never")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			r.onUpdate = func(context.Context, *Update) error { return test.err }
			c, stop := opened(t, r)
			see[Assigned](t, r)
			c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"), insertOf(2, "b"))))
			for range test.calls {
				see[*Update](t, r)
			}
			if halted := see[Halted](t, r); halted.Update != "db1:1:0" || !errors.Is(halted.Err, test.err) {
				t.Errorf("halted %+v", halted)
			}
			failed := want[*wirev1.SubscriberFrame_Failed](c).Failed
			if failed.Reason != wirev1.Failed_HANDLER || failed.UpdateId != "db1:1:0" {
				t.Errorf("failed %v", failed)
			}
			c.send(revokeFrame(1))
			if released := want[*wirev1.SubscriberFrame_Released](c).Released; released.Marker != nil {
				t.Errorf("released %v", released)
			}
			_ = stop()
		})
	}
}

func TestAnUpdateIsParkedWithLaterOnesOfItsRow(t *testing.T) {
	r := newRecorder()
	r.onUpdate = func(_ context.Context, u *Update) error {
		if u.Key[0].Int() == 1 {
			return errors.New("never\nagain")
		}
		return nil
	}
	c, _ := opened(t, r, func(a *wirev1.Assign) { a.Park = true })
	see[Assigned](t, r)
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"), insertOf(2, "b"), insertOf(1, "c"))), markerFrame(1, 3))
	for i, id := range []string{"db1:1:0", "db1:3:0"} {
		park := want[*wirev1.SubscriberFrame_Park](c).Park
		if park.UpdateId != id || (park.Error == "never again") != (i == 0) {
			t.Errorf("parked %v", park)
		}
		body, err := parseBody(park.Body)
		if err != nil || len(body.updates) != 1 || park.Place.Transaction != id[:5] {
			t.Errorf("parked %v: %v", park, err)
		}
		c.send(&wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Parked{
			Parked: &wirev1.Parked{Flow: 1, Epoch: 1, UpdateId: id},
		}})
	}
	for _, key := range []int64{1, 1, 1, 2} {
		if u := see[*Update](t, r); u.Key[0].Int() != key {
			t.Fatalf("got %v, want %d", u, key)
		}
	}
	see[Datamarker](t, r)
}

func TestARefusedParkHaltsTheShard(t *testing.T) {
	r := newRecorder()
	r.onUpdate = func(context.Context, *Update) error { return Permanent(errors.New("never")) }
	c, _ := opened(t, r, func(a *wirev1.Assign) { a.Park = true })
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"))))
	want[*wirev1.SubscriberFrame_Park](c)
	c.send(&wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Parked{
		Parked: &wirev1.Parked{Flow: 1, Epoch: 1, UpdateId: "db1:1:0", Refused: "no room"},
	}})
	if failed := want[*wirev1.SubscriberFrame_Failed](c).Failed; failed.Reason != wirev1.Failed_HANDLER {
		t.Errorf("failed %v", failed)
	}
}

func TestASkippedUpdateIsPassedOverThoughItIsNoRow(t *testing.T) {
	r := newRecorder()
	c, _ := opened(t, r, func(a *wirev1.Assign) { a.Skip = []string{"db1:1:0"} })
	see[Assigned](t, r)
	c.send(batchFrame(1, 1, bodyOf(1, []byte{0xff}, insertOf(2, "b"))))
	if u := see[*Update](t, r); u.ID() != "db1:2:0" {
		t.Errorf("got %v", u)
	}
}

func TestARowThatCannotBeReadHaltsTheShard(t *testing.T) {
	r := newRecorder()
	c, _ := opened(t, r)
	c.send(batchFrame(1, 1, bodyOf(1, []byte{0x08, 0x63})))
	if failed := want[*wirev1.SubscriberFrame_Failed](c).Failed; failed.UpdateId != "db1:1:0" {
		t.Errorf("failed %v", failed)
	}
}

func TestTheEndOfATransactionIsKnownHoweverItIsCut(t *testing.T) {
	type end struct {
		id   string
		ends bool
	}
	unfinished := func(first uint32, updates ...[]byte) *wirev1.BatchBody {
		body := bodyOf(1, updates...)
		body.TxNumber, body.TxOffset, body.TxEnd, body.FirstIndex = []uint64{1}, []uint64{1}, nil, first
		return body
	}
	ended := func(first uint32, updates ...[]byte) *wirev1.BatchBody {
		body := unfinished(first, updates...)
		body.TxEnd = []uint32{uint32(len(updates))}
		return body
	}
	a, b := insertOf(1, "a"), insertOf(2, "b")
	for name, test := range map[string]struct {
		frames []*wirev1.PublisherFrame
		want   []end
	}{
		"in the next batch, with an update": {
			[]*wirev1.PublisherFrame{batchFrame(1, 1, unfinished(0, a)), batchFrame(1, 2, ended(1, b))},
			[]end{{"db1:1:0", false}, {"db1:1:1", true}},
		},
		"in the next batch, without one": {
			[]*wirev1.PublisherFrame{batchFrame(1, 1, unfinished(0, a, b)), batchFrame(1, 2, ended(2))},
			[]end{{"db1:1:0", false}, {"db1:1:1", true}},
		},
		"at a datamarker": {
			[]*wirev1.PublisherFrame{batchFrame(1, 1, unfinished(0, a, b)), markerFrame(1, 1)},
			[]end{{"db1:1:0", false}, {"db1:1:1", true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			c, _ := opened(t, r)
			see[Assigned](t, r)
			for _, frame := range test.frames {
				c.send(frame)
			}
			for _, want := range test.want {
				if u := see[*Update](t, r); u.ID() != want.id || u.EndsTransaction != want.ends {
					t.Errorf("got %v, ends %t; want %+v", u, u.EndsTransaction, want)
				}
			}
		})
	}
}

func TestAKeptDatamarkerReplacesTheStoredOneUnlessTheShardWasMoved(t *testing.T) {
	stored := Datamarker{marker(5)}
	for name, test := range map[string]struct {
		kept   Kept
		change func(*wirev1.Assign)
		have   bool
	}{
		"it was not moved":               {Kept{Marker: stored}, func(*wirev1.Assign) {}, true},
		"it was moved since":             {Kept{Marker: stored}, func(a *wirev1.Assign) { a.Move = 2 }, false},
		"the move is known":              {Kept{Marker: stored, Move: 2}, func(a *wirev1.Assign) { a.Move = 2 }, true},
		"it was rewound":                 {Kept{Marker: stored}, func(a *wirev1.Assign) { a.Rewound = true }, false},
		"no numbers are kept":            {Kept{Marker: stored, Unnumbered: true}, func(a *wirev1.Assign) { a.Move = 2 }, true},
		"no numbers are kept, and moved": {Kept{Marker: stored, Unnumbered: true}, func(a *wirev1.Assign) { a.Move, a.Rewound = 2, true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			r.kept = &test.kept
			p := newFakePublisher(t)
			running(t, p, r)
			c := p.hello()
			c.send(assignFrame(3, test.change))
			accepted := want[*wirev1.SubscriberFrame_Accepted](c).Accepted
			if (accepted.Have != nil) != test.have || (test.have && accepted.Move != test.kept.Move) {
				t.Errorf("accepted %v", accepted)
			}
		})
	}
}

func TestARevokedShardAcknowledgesTheDatamarkerBeforeIt(t *testing.T) {
	r := newRecorder()
	c, _ := opened(t, r)
	c.send(markerFrame(1, 9), revokeFrame(1))
	if ack := want[*wirev1.SubscriberFrame_Ack](c).Ack; !proto.Equal(ack.Marker, marker(9)) {
		t.Errorf("acknowledged %v", ack)
	}
	if released := want[*wirev1.SubscriberFrame_Released](c).Released; !proto.Equal(released.Marker, marker(9)) {
		t.Errorf("released %v", released)
	}
}

// slowMarker is a handler whose OnDatamarker waits.
type slowMarker struct {
	*recorder
	end chan struct{}
}

func (h slowMarker) OnDatamarker(context.Context, string, Datamarker) error {
	h.seen <- "begun"
	<-h.end
	return nil
}

func TestADatamarkerIsNotAcknowledgedAfterItsStreamEnded(t *testing.T) {
	h := slowMarker{newRecorder(), make(chan struct{})}
	c, _ := opened(t, h)
	see[Assigned](t, h.recorder)
	c.send(markerFrame(1, 9))
	see[string](t, h.recorder)
	c.send(helloFrame()) // a second one breaks the protocol
	c.wantGoodbye(wirev1.Goodbye_PROTOCOL)
	close(h.end)
	if revoked := see[Revoked](t, h.recorder); !revoked.Marker.IsZero() {
		t.Errorf("revoked %v", revoked)
	}
}

func TestEpochsAreRememberedOverStreams(t *testing.T) {
	r := newRecorder()
	first, second := newFakePublisher(t), newFakePublisher(t)
	running(t, first, r, func(s *Subscriber) { s.Dial = []string{first.address, second.address} })
	c := first.hello()
	c.send(assignFrame(7))
	want[*wirev1.SubscriberFrame_Accepted](c)

	other := second.accept()
	hello := helloFrame()
	hello.GetHello().Owner = "owner-2"
	other.send(hello)
	want[*wirev1.SubscriberFrame_Welcome](other)
	for _, epoch := range []uint64{6, 7} {
		other.send(assignFrame(epoch, func(a *wirev1.Assign) { a.Flow = uint32(epoch) }))
		failed := want[*wirev1.SubscriberFrame_Failed](other).Failed
		if failed.Reason != wirev1.Failed_STALE_EPOCH || failed.HeldEpoch != 7 || !failed.Contested {
			t.Errorf("failed %v", failed)
		}
	}
	other.send(assignFrame(8, func(a *wirev1.Assign) { a.Flow, a.Yields = 8, true }))
	if failed := want[*wirev1.SubscriberFrame_Failed](other).Failed; failed.HeldBy != "shop/main/db1" {
		t.Errorf("failed %v", failed)
	}
	other.send(assignFrame(8, func(a *wirev1.Assign) { a.Flow = 9 }))
	want[*wirev1.SubscriberFrame_Accepted](other)
	if failed := want[*wirev1.SubscriberFrame_Failed](c).Failed; failed.HeldEpoch != 8 {
		t.Errorf("failed %v", failed)
	}
}

func TestANewEpochWaitsForTheCallbacksOfTheFormerOne(t *testing.T) {
	r := newRecorder()
	release := make(chan struct{})
	r.onUpdate = func(_ context.Context, u *Update) error {
		if u.Epoch == 1 {
			<-release
		}
		return nil
	}
	c, _ := opened(t, r)
	see[Assigned](t, r)
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"), insertOf(2, "b"))))
	see[*Update](t, r)
	c.send(assignFrame(2), batchFrame(1, 2, bodyOf(3, insertOf(3, "c"))))
	c.send(assignFrame(1, func(a *wirev1.Assign) { a.Flow, a.Shard = 2, "other" }))
	want[*wirev1.SubscriberFrame_Accepted](c) // so the frames before it were read
	see[Assigned](t, r)
	close(release)
	see[Revoked](t, r)
	if a := see[Assigned](t, r); a.Epoch != 2 {
		t.Errorf("assigned %+v", a)
	}
	accepted := want[*wirev1.SubscriberFrame_Accepted](c).Accepted
	if accepted.Epoch != 2 {
		t.Errorf("accepted %v", accepted)
	}
}

func TestALossOfLogIsDecidedByTheApplication(t *testing.T) {
	r := newRecorder()
	r.decision = LossContinue
	c, _ := opened(t, r)
	see[Assigned](t, r)
	c.send(&wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_DataLoss{DataLoss: &wirev1.DataLoss{
		Flow: 1, Epoch: 1, Kind: wirev1.DataLoss_NOT_LOGGED, FirstMissing: "1", LastMissing: "2", Resume: marker(3),
	}}})
	if loss := see[DataLoss](t, r); loss.Kind != NotLogged || loss.LastMissing != "2" || loss.Resume.IsZero() {
		t.Errorf("lost %+v", loss)
	}
	if !want[*wirev1.SubscriberFrame_LossDecision](c).LossDecision.Proceed {
		t.Error("it does not proceed")
	}
}

func TestAReplayOfTheLatestIsRefusedUnlessStateOnly(t *testing.T) {
	notice := &wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Notice{Notice: &wirev1.ShardNotice{
		Flow: 1, Epoch: 1, Kind: wirev1.ShardNotice_REPLAY_BEGIN, Latest: true,
	}}}
	c, _ := opened(t, newRecorder())
	c.send(notice)
	if failed := want[*wirev1.SubscriberFrame_Failed](c).Failed; failed.Reason != wirev1.Failed_HANDLER {
		t.Errorf("failed %v", failed)
	}
	r, p := newRecorder(), newFakePublisher(t)
	running(t, p, r, func(s *Subscriber) { s.StateOnly = true })
	c = p.hello()
	c.send(assignFrame(1))
	want[*wirev1.SubscriberFrame_Accepted](c)
	c.send(notice)
	see[Assigned](t, r)
	if replay := see[Replay](t, r); !replay.Begin || !replay.Latest {
		t.Errorf("got %+v", replay)
	}
}

func TestTheEndsOfExistingRowsAreReported(t *testing.T) {
	r := newRecorder()
	c, _ := opened(t, r, func(a *wirev1.Assign) { a.Generation = 4 })
	see[Assigned](t, r)
	key := func(id int64) *wirev1.RowKey {
		return &wirev1.RowKey{Values: []*wirev1.Value{{Kind: &wirev1.Value_Int{Int: id}}}}
	}
	c.send(
		&wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_ChunkEnd{ChunkEnd: &wirev1.ChunkEnd{
			Flow: 1, Epoch: 1, Schema: users.id, After: key(1), Until: key(9), Except: []*wirev1.RowKey{key(5)},
			Portable: true, Rows: 3,
		}}},
		&wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_ScanEnd{ScanEnd: &wirev1.ScanEnd{
			Flow: 1, Epoch: 1, Table: "users", Generation: 4, Rows: 3,
		}}},
	)
	keys := see[KeyRange](t, r)
	for id, contained := range map[int64]bool{1: false, 2: true, 5: false, 9: true, 10: false} {
		if keys.Contains([]Value{IntValue(id)}) != contained {
			t.Errorf("%d: want %t", id, contained)
		}
	}
	if end := see[ScanEnd](t, r); end.Table != "users" || end.Generation != 4 || end.Rows != 3 {
		t.Errorf("got %+v", end)
	}
}

type transactional struct {
	*recorder
	undone chan Rollback
}

func (h *transactional) OnRollback(_ context.Context, rollback Rollback) error {
	h.undone <- rollback
	return nil
}

func TestAnApplicationThatRollsBackGetsEverythingSinceTheDatamarkerAgain(t *testing.T) {
	h := &transactional{newRecorder(), make(chan Rollback, 10)}
	h.onUpdate = func(context.Context, *Update) error { return errors.New("deadlock") }
	p := newFakePublisher(t)
	running(t, p, h, func(s *Subscriber) { s.Transactional = true })
	c := p.hello()
	c.send(assignFrame(1, func(a *wirev1.Assign) { a.RolledBack = "db1:9" }), schemaFrame(users))
	want[*wirev1.SubscriberFrame_Accepted](c)
	var rolledBack *TransactionRolledBackError
	if undone := <-h.undone; !errors.As(undone.Cause, &rolledBack) || rolledBack.Transaction != "db1:9" {
		t.Errorf("undone %+v", undone)
	}
	for attempt := range uint64(3) {
		epoch := attempt + 1
		if attempt > 0 {
			c.send(assignFrame(epoch))
			want[*wirev1.SubscriberFrame_Accepted](c)
		}
		c.send(batchFrame(epoch, 1, bodyOf(1, insertOf(1, "a"))))
		reason := wirev1.Failed_RESEND
		if epoch == 3 {
			reason = wirev1.Failed_HANDLER // the count outlives the epochs
		} else {
			<-h.undone
		}
		if failed := want[*wirev1.SubscriberFrame_Failed](c).Failed; failed.Reason != reason {
			t.Errorf("epoch %d: failed %v", epoch, failed)
		}
	}
}

type batched struct {
	*recorder
	batches chan []int64
	poison  int64
}

func (h *batched) OnUpdates(_ context.Context, updates []*Update) error {
	var keys []int64
	for _, u := range updates {
		keys = append(keys, u.Key[0].Int())
	}
	h.batches <- keys
	for _, key := range keys {
		if key == h.poison {
			return errors.New("poison")
		}
	}
	return nil
}

func TestTheUpdateThatFailsIsFoundAmongSeveral(t *testing.T) {
	h := &batched{newRecorder(), make(chan []int64, 100), 2}
	c, _ := opened(t, h, func(a *wirev1.Assign) { a.Park = true })
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"), insertOf(2, "b"), insertOf(3, "c"))))
	if park := want[*wirev1.SubscriberFrame_Park](c).Park; park.UpdateId != "db1:2:0" {
		t.Errorf("parked %v", park)
	}
	if first := <-h.batches; len(first) != 3 {
		t.Errorf("got %v", first)
	}
}

func TestSeveralUpdatesTakeABoundedMemory(t *testing.T) {
	h := &batched{newRecorder(), make(chan []int64, 100), 0}
	c, _ := opened(t, h)
	large := strings.Repeat("x", mostTogether/2)
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, large), insertOf(2, large), insertOf(3, large))))
	if first, second := <-h.batches, <-h.batches; len(first) != 2 || len(second) != 1 {
		t.Errorf("got %v and %v", first, second)
	}
}

func TestARefusedCallIsReported(t *testing.T) {
	r := newRecorder()
	p := newFakePublisher(t)
	running(t, p, r)
	c := p.accept()
	c.stream.SetTrailer(metadata.Pairs("wormhole-code", "address-taken", "wormhole-hint-bin", "wait"))
	c.end <- status.Error(codes.PermissionDenied, "another process has the id. Next: wait [address-taken]")
	refused := see[*RefusedError](t, r)
	if refused.Code != "address-taken" || refused.Hint != "wait" || refused.Message != "another process has the id" {
		t.Errorf("refused %+v", refused)
	}
	p.hello() // it is dialled again
}

func TestACallbackThatTakesTooLongIsCancelled(t *testing.T) {
	r := newRecorder()
	r.onUpdate = func(ctx context.Context, u *Update) error {
		if u.Key[0].Int() == 1 {
			<-ctx.Done()
			return Permanent(ctx.Err())
		}
		return ctx.Err()
	}
	p := newFakePublisher(t)
	running(t, p, r, func(s *Subscriber) { s.HandlerTimeout = 10 * time.Millisecond })
	c := p.hello()
	c.send(assignFrame(1, func(a *wirev1.Assign) { a.Park = true }), schemaFrame(users))
	want[*wirev1.SubscriberFrame_Accepted](c)
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"), insertOf(2, "b"))), markerFrame(1, 2))
	want[*wirev1.SubscriberFrame_Park](c)
	c.send(&wirev1.PublisherFrame{Kind: &wirev1.PublisherFrame_Parked{
		Parked: &wirev1.Parked{Flow: 1, Epoch: 1, UpdateId: "db1:1:0"},
	}})
	want[*wirev1.SubscriberFrame_Ack](c)
}

func TestWhatCannotRunIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Subscriber){
		"no application":         func(s *Subscriber) { s.Application = "" },
		"no handler":             func(s *Subscriber) { s.Handler = nil },
		"nothing to dial":        func(s *Subscriber) { s.Dial = nil },
		"no port":                func(s *Subscriber) { s.Dial = []string{"localhost"} },
		"no TLS beyond loopback": func(s *Subscriber) { s.Dial = []string{"192.0.2.1:1"} },
		"a token without TLS": func(s *Subscriber) {
			s.Dial, s.Insecure, s.Token = []string{"192.0.2.1:1"}, true, StaticToken("t")
		},
		"nothing to roll back with": func(s *Subscriber) { s.Transactional = true },
		"publishers without TLS":    func(s *Subscriber) { s.Publishers = []string{"db1"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := Subscriber{Application: "app", Dial: []string{"127.0.0.1:1"}, Handler: newRecorder()}
			change(&s)
			if err := s.Run(context.Background()); err == nil {
				t.Error("it runs")
			}
		})
	}
}

func TestAPublisherThatWentSilentIsDialledAgain(t *testing.T) {
	p := newFakePublisher(t)
	running(t, p, newRecorder())
	c := p.accept()
	hello := helloFrame()
	hello.GetHello().HeartbeatMs = 50
	c.send(hello)
	want[*wirev1.SubscriberFrame_Welcome](c)
	began := time.Now()
	p.accept()
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("it was given up after %s, before three heartbeats", took)
	}
}

func TestACallbackThatDoesNotEndIsReportedByRun(t *testing.T) {
	r := newRecorder()
	r.onUpdate = func(ctx context.Context, _ *Update) error {
		<-ctx.Done() // it ends when the stop has waited for long enough
		return ctx.Err()
	}
	p := newFakePublisher(t)
	stop := running(t, p, r, func(s *Subscriber) { s.StopTimeout = 10 * time.Millisecond })
	c := p.hello()
	c.send(assignFrame(1), schemaFrame(users))
	want[*wirev1.SubscriberFrame_Accepted](c)
	see[Assigned](t, r)
	c.send(batchFrame(1, 1, bodyOf(1, insertOf(1, "a"))))
	see[*Update](t, r)
	if err := stop(); err == nil {
		t.Error("Run says that every callback ended")
	}
}

func TestABodyInPartsIsJoined(t *testing.T) {
	r := newRecorder()
	c, _ := opened(t, r)
	see[Assigned](t, r)
	body := bytesOf(bodyOf(1, insertOf(1, "a")))
	for i, data := range [][]byte{body[:5], body[5:]} {
		c.send(frame(&wirev1.Part{
			Flow: 1, Epoch: 1, Number: 1, Index: uint32(i), Last: i == 1, TotalBytes: uint64(len(body)), Data: data,
		}))
	}
	if u := see[*Update](t, r); u.Key[0].Int() != 1 {
		t.Errorf("got %v", u)
	}
}

func TestABatchOfAnUnknownSchemaEndsTheStream(t *testing.T) {
	c, _ := opened(t, newRecorder())
	body := bodyOf(1, insertOf(1, "a"))
	body.SchemaIds = []uint64{5}
	c.send(batchFrame(1, 1, body))
	if goodbye := c.wantGoodbye(wirev1.Goodbye_PROTOCOL); !strings.Contains(goodbye.Message, "schema_ids") {
		t.Errorf("got %v", goodbye)
	}
}
