package wormhole

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	protocolVersion  = 3
	silentHeartbeats = 3 // after which the other side is taken for gone
	helloTimeout     = 10 * time.Second
	rememberedFlows  = 4096    // that ended and may still have frames on the way
	longestText      = 1000    // characters
	longestShard     = 4096    // characters
	unreadFrames     = 50_000  // of ours, that wait for a publisher that does not read
	parkPiece        = 1 << 20 // of a parked update's body
)

// The events of a session, for the flows that it feeds.
type (
	event any

	// welcomed says that the publisher was accepted.
	welcomed struct{}
	// closed says that the stream is over.
	closed struct {
		cause    string
		expected bool
	}
	// arrived is something for a flow to work on.
	arrived struct {
		flow uint32
		item item
	}
	revoked struct {
		flow  uint32
		cause string
	}
	parkAnswered struct {
		flow            uint32
		update, refused string
	}
)

// assignment is a flow that a publisher assigned.
type assignment struct {
	*wirev1.Assign
	marker Datamarker
	parked []parkedRow
}

type parkedRow struct {
	key   string
	table string
	first place
}

// peer is the publisher at the other end of a stream.
type peer struct {
	certificate []string // its names
	name        string
	dataset     string
	log         string
	owner       string
	gone        atomic.Bool
}

// differs reports whether this is another publisher. One of an unknown owner differs from every other stream.
func (p *peer) differs(other *peer) bool {
	return p != other && (p.owner == "" || p.owner != other.owner)
}

// session is one stream as seen by the subscriber: frames and time in, events and frames out. It has no clock and no
// I/O, and its user serializes the calls.
type session struct {
	application string
	subscriber  string
	takesRanges bool
	maxFrame    int
	maxBody     uint64
	admits      func(certificate []string, dataset string) error
	peer        *peer
	expected    string   // the publisher that was connected at the address a moment ago; empty: any may answer
	state       *account // memory that stays as long as a stream or a flow
	large       *account // batches over the credit of their flow

	flows     map[uint32]*flow
	ofShard   map[string]*flow // the one that was assigned last
	gone      map[uint32]uint64
	goneOrder []uint32
	schemas   map[uint64]*Schema
	out       outbox

	isClosed     bool
	left         bool          // the publisher ended the stream because it stops
	refused      *RefusedError // the publisher may not push here
	beats        uint64
	heartbeat    time.Duration // 0 before Hello
	heard, spoke time.Time
	reportAt     time.Time
	dropped      int // frames that arrived too late
}

func newSession(s session, now time.Time) *session {
	s.flows = make(map[uint32]*flow)
	s.ofShard = make(map[string]*flow)
	s.gone = make(map[uint32]uint64)
	s.schemas = make(map[uint64]*Schema)
	s.heard, s.spoke, s.reportAt = now, now, now
	return &s
}

// --- in ---

// receive takes one gRPC message. Its frames are parsed one by one, because two bytes can become an object of fifty.
func (s *session) receive(data []byte, now time.Time) []event {
	if s.isClosed {
		return nil
	}
	s.heard = now
	var events []event
	err := s.receiveFrames(data, &events)
	if err != nil {
		events = append(events, s.refuse(err))
	}
	return events
}

func (s *session) receiveFrames(data []byte, events *[]event) error {
	if len(data) > s.maxFrame {
		return fmt.Errorf("message of %d bytes; Welcome.max_frame_bytes was %d", len(data), s.maxFrame)
	}
	if len(s.out.frames) > unreadFrames {
		return fmt.Errorf("%d answers wait: this publisher sends, and reads nothing", len(s.out.frames))
	}
	for len(data) > 0 && !s.isClosed { // what follows a goodbye is not read
		number, kind, n := protowire.ConsumeField(data)
		if n < 0 {
			return fmt.Errorf("PublisherMessage: no valid message: %w", protowire.ParseError(n))
		}
		field := data[:n]
		data = data[n:]
		if number != 1 || kind != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(field[protowire.SizeTag(number):])
		frame := &wirev1.PublisherFrame{}
		if err := proto.Unmarshal(content, frame); err != nil {
			return fmt.Errorf("PublisherMessage: no valid message: %w", err)
		}
		if err := s.receiveFrame(frame, events); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) receiveFrame(frame *wirev1.PublisherFrame, events *[]event) error {
	hello := frame.GetHello()
	switch {
	case frame.Kind == nil:
		return fmt.Errorf("PublisherFrame.kind: a frame of a kind that protocol version %d does not have", protocolVersion)
	case s.heartbeat == 0 && hello == nil:
		return fmt.Errorf("%T: the first frame of a stream is hello", frame.Kind)
	case s.heartbeat != 0 && hello != nil:
		return fmt.Errorf("hello: a second one")
	}
	switch kind := frame.Kind.(type) {
	case *wirev1.PublisherFrame_Hello:
		return s.receiveHello(hello, events)
	case *wirev1.PublisherFrame_Assign:
		return s.receiveAssign(kind.Assign, events)
	case *wirev1.PublisherFrame_Schema:
		return s.receiveSchema(kind.Schema)
	case *wirev1.PublisherFrame_Heartbeat:
		return nil
	case *wirev1.PublisherFrame_Goodbye:
		goodbye := kind.Goodbye
		cause := fmt.Sprintf("publisher said goodbye (%s) %s", goodbye.Reason, shortened(goodbye.Message))
		s.left = goodbye.Reason == wirev1.Goodbye_LEAVING
		*events = append(*events, s.close(cause, s.left))
		return nil
	}
	name, number, epoch := flowOf(frame)
	f, err := s.flowAt(name, number, epoch)
	if f == nil || err != nil {
		return err
	}
	return s.receiveFlowFrame(f, frame, events)
}

// flowOf returns the kind of a frame of a flow, and which flow it is of.
func flowOf(frame *wirev1.PublisherFrame) (name string, number uint32, epoch uint64) {
	reflected := frame.ProtoReflect()
	field := reflected.WhichOneof(reflected.Descriptor().Oneofs().ByName("kind"))
	message := reflected.Get(field).Message().Interface().(interface {
		GetFlow() uint32
		GetEpoch() uint64
	})
	return string(field.Name()), message.GetFlow(), message.GetEpoch()
}

// flowAt returns the flow of a frame; nil if the frame arrived too late.
func (s *session) flowAt(kind string, number uint32, epoch uint64) (*flow, error) {
	f := s.flows[number]
	newest, known := s.gone[number]
	if f != nil {
		newest, known = f.epoch, true
	}
	switch {
	case !known:
		return nil, fmt.Errorf("%s.flow: %d was never assigned on this stream", kind, number)
	case epoch > newest:
		return nil, fmt.Errorf("%s.epoch: %d of flow %d, which was assigned in epoch %d", kind, epoch, number, newest)
	case f == nil || epoch < newest || f.phase == phaseRevoked || (f.phase == phaseFailed && kind != "revoke"):
		s.dropped++
		return nil, nil
	}
	return f, nil
}

func (s *session) receiveFlowFrame(f *flow, frame *wirev1.PublisherFrame, events *[]event) error {
	var item item
	var err error
	switch kind := frame.Kind.(type) {
	case *wirev1.PublisherFrame_Batch:
		batch := kind.Batch
		if err = f.batch(batch); err == nil && s.hasRoom(f) {
			item = &batchItem{batch.Number, batch.Replayed, batch.Body, batch.Unfinished}
		}
	case *wirev1.PublisherFrame_Part:
		part := kind.Part
		var whole []byte
		if whole, err = f.part(part); err == nil && s.hasRoom(f) && whole != nil {
			item = &batchItem{part.Number, part.Replayed, whole, part.Unfinished}
		}
	case *wirev1.PublisherFrame_Datamarker:
		item, err = s.datamarker(f, kind.Datamarker)
	case *wirev1.PublisherFrame_Revoke:
		f.close(phaseRevoked)
		*events = append(*events, revoked{f.number, shortened(kind.Revoke.Cause)})
	case *wirev1.PublisherFrame_Notice:
		item, err = s.notice(f, kind.Notice)
	case *wirev1.PublisherFrame_DataLoss:
		item, err = s.dataLoss(f, kind.DataLoss)
	case *wirev1.PublisherFrame_ChunkEnd:
		item, err = s.chunkEnd(f, kind.ChunkEnd)
	case *wirev1.PublisherFrame_ScanEnd:
		item, err = s.scanEnd(f, kind.ScanEnd)
	case *wirev1.PublisherFrame_Parked:
		*events = append(*events, parkAnswered{f.number, kind.Parked.UpdateId, shortened(kind.Parked.Refused)})
	}
	if err == nil && item != nil {
		*events = append(*events, arrived{f.number, item})
	}
	return err
}

func (s *session) receiveHello(hello *wirev1.Hello, events *[]event) error {
	for _, field := range []struct{ name, text string }{
		{"publisher", hello.Publisher}, {"dataset", hello.Dataset}, {"copy", hello.Copy}, {"log", hello.Log},
		{"application", hello.Application}, {"subscriber", hello.Subscriber}, {"owner", hello.Owner},
	} {
		if utf8.RuneCountInString(field.text) > longestText {
			return fmt.Errorf("hello.%s: longer than %d characters", field.name, longestText)
		}
	}
	s.peer.name, s.peer.dataset, s.peer.log, s.peer.owner = hello.Publisher, hello.Dataset, hello.Log, hello.Owner
	here := s.application + "/" + s.subscriber
	refuse := func(reason wirev1.Goodbye_Reason, code, message, hint string) error {
		s.goodbye(reason, message, hint)
		s.refused = &RefusedError{Code: code, Message: message, Hint: hint}
		*events = append(*events, closed{cause: message})
		return nil
	}
	if hello.MinVersion > protocolVersion || hello.MaxVersion < protocolVersion {
		return refuse(wirev1.Goodbye_VERSION, "protocol-broken",
			fmt.Sprintf("publisher %s speaks protocol versions %d to %d, subscriber %s %d to %d: they have none in common",
				hello.Publisher, hello.MinVersion, hello.MaxVersion, here, protocolVersion, protocolVersion),
			"upgrade the older side first (docs/upgrade.md)")
	}
	if hello.Application != s.application || (hello.Subscriber != "" && hello.Subscriber != s.subscriber) {
		return refuse(wirev1.Goodbye_WRONG_ADDRESS, "address-taken",
			fmt.Sprintf("%s/%s was meant, this is %s", hello.Application, hello.Subscriber, here),
			"look for two publishers or two subscribers with one address")
	}
	if s.expected != "" && withoutProcess(hello.Publisher) != s.expected {
		return refuse(wirev1.Goodbye_WRONG_ADDRESS, "address-taken",
			fmt.Sprintf("publisher %s answers at the address where %s was connected a moment ago: several publishers are "+
				"behind it, and of these only one would be connected", hello.Publisher, s.expected),
			"dial each publisher at an address of its own (docs/dialling.md); one that takes the place of another is "+
				"accepted after half a minute")
	}
	if err := s.admits(s.peer.certificate, hello.Dataset); err != nil {
		return refuse(wirev1.Goodbye_NOT_ALLOWED, "certificate-refused", err.Error(),
			"add the certificate's name to Publishers of the subscriber")
	}
	if hello.HeartbeatMs == 0 || hello.HeartbeatMs > 3_600_000 {
		return fmt.Errorf("hello.heartbeat_ms: %d; 1 to 3600000 is allowed", hello.HeartbeatMs)
	}
	s.heartbeat = time.Duration(hello.HeartbeatMs) * time.Millisecond
	s.reportAt = s.heard.Add(s.heartbeat)
	s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Welcome{Welcome: &wirev1.Welcome{
		Version:       protocolVersion,
		Application:   s.application,
		Subscriber:    s.subscriber,
		MaxFrameBytes: uint32(s.maxFrame),
		TakesRanges:   s.takesRanges,
	}}})
	*events = append(*events, welcomed{})
	return nil
}

// withoutProcess returns the part of Hello.publisher that stays the same when the publisher restarts.
func withoutProcess(publisher string) string {
	if colon := strings.LastIndexByte(publisher, ':'); colon > 0 {
		return publisher[:colon]
	}
	return publisher
}

func (s *session) receiveSchema(frame *wirev1.SchemaFrame) error {
	if s.schemas[frame.Id] != nil {
		return nil
	}
	what := fmt.Sprintf("schema %#016x", frame.Id)
	if err := s.state.charge(schemaBytes+2*len(frame.Canonical), what); err != nil {
		return err
	}
	schema, err := parseSchema(frame.Canonical)
	if err != nil {
		return fmt.Errorf("schema.canonical: no valid Schema: %w", err)
	}
	if schema.id != frame.Id {
		return fmt.Errorf("schema.id: %#016x, but its canonical bytes hash to %#016x", frame.Id, schema.id)
	}
	if err := s.state.charge(columnBytes*(len(schema.Key)+len(schema.Columns)), what); err != nil {
		return err
	}
	s.schemas[frame.Id] = schema
	return nil
}

func (s *session) receiveAssign(assign *wirev1.Assign, events *[]event) error {
	switch {
	case assign.Application != s.application:
		return fmt.Errorf("assign.application: %.100q on a stream of %q", assign.Application, s.application)
	case assign.Shard == "" || utf8.RuneCountInString(assign.Shard) > longestShard:
		return fmt.Errorf("assign.shard: 1 to %d characters are allowed", longestShard)
	case utf8.RuneCountInString(assign.RolledBack) > longestText:
		return fmt.Errorf("assign.rolled_back: longer than %d characters", longestText)
	case assign.Epoch+1 >= 1<<63:
		return fmt.Errorf("assign.epoch: %d; epochs are below 2^63", assign.Epoch)
	case assign.Verify != wirev1.Verify_VERIFY_NONE:
		return fmt.Errorf("assign.verify: %d; this subscriber does not verify", assign.Verify)
	}
	marker, err := markerOf(assign.Marker)
	if err != nil {
		return fmt.Errorf("assign.marker: %w", err)
	}
	parked, err := parkedRowsOf(assign.Parked)
	if err != nil {
		return err
	}
	if old := s.flows[assign.Flow]; old != nil {
		if old.shard != assign.Shard {
			return fmt.Errorf("assign.flow: %d is in use for shard %s", assign.Flow, old.shard)
		}
		if old.epoch >= assign.Epoch {
			return fmt.Errorf("assign.epoch: %d for flow %d, which has epoch %d", assign.Epoch, assign.Flow, old.epoch)
		}
		s.forget(old)
	}
	if failed := s.ofShard[assign.Shard]; failed != nil && failed.phase == phaseFailed {
		s.forget(failed) // it is assigned again under another number, and the former one is never revoked
	}
	f := &flow{
		number: assign.Flow, epoch: assign.Epoch, shard: assign.Shard, generation: assign.Generation, maxBody: s.maxBody,
	}
	f.kept = flowBytes + 2*len(assign.Shard) + 8*proto.Size(assign)
	if err := s.state.charge(f.kept, "shard "+shortened(assign.Shard)); err != nil {
		return err
	}
	s.flows[assign.Flow] = f
	s.ofShard[assign.Shard] = f
	*events = append(*events, &assignment{assign, marker, parked})
	return nil
}

func parkedRowsOf(messages []*wirev1.ParkedKey) ([]parkedRow, error) {
	rows := make([]parkedRow, 0, len(messages))
	for _, message := range messages {
		first, err := placeOf(message.GetFirst())
		if err != nil {
			return nil, fmt.Errorf("assign.parked: %w", err)
		}
		key := message.GetKey()
		if len(key.GetValues()) == 0 {
			key = &wirev1.RowKey{Table: key.GetTable(), Whole: true} // releases before wrote it without `whole`
		}
		rows = append(rows, parkedRow{rowKey(key), key.GetTable(), first})
	}
	return rows, nil
}

func (s *session) datamarker(f *flow, frame *wirev1.DatamarkerFrame) (item, error) {
	if err := f.between("datamarker"); err != nil {
		return nil, err
	}
	marker, err := markerOf(frame.Marker)
	if err != nil {
		return nil, fmt.Errorf("datamarker.marker: %w", err)
	}
	return &markerItem{marker}, s.keep(f, proto.Size(frame.Marker), marker)
}

func (s *session) notice(f *flow, frame *wirev1.ShardNotice) (item, error) {
	if err := f.between("notice"); err != nil {
		return nil, err
	}
	begin := frame.Kind == wirev1.ShardNotice_REPLAY_BEGIN
	if !begin && frame.Kind != wirev1.ShardNotice_REPLAY_END {
		return nil, fmt.Errorf("notice.kind: %d is neither REPLAY_BEGIN nor REPLAY_END", frame.Kind)
	}
	return &replayItem{begin, frame.Latest}, s.keep(f, 0, Datamarker{})
}

func (s *session) dataLoss(f *flow, frame *wirev1.DataLoss) (item, error) {
	if err := f.between("data_loss"); err != nil {
		return nil, err
	}
	if f.deciding {
		return nil, fmt.Errorf("data_loss.flow: another one of flow %d is not decided yet", f.number)
	}
	if frame.Kind < wirev1.DataLoss_PURGED || frame.Kind > wirev1.DataLoss_DIVERGED {
		return nil, fmt.Errorf("data_loss.kind: %d is not known", frame.Kind)
	}
	f.deciding = true
	loss := DataLoss{
		Shard: f.shard, Epoch: f.epoch, Kind: LossKind(frame.Kind), Message: frame.Message,
		FirstMissing: frame.FirstMissing, LastMissing: frame.LastMissing,
	}
	if frame.Resume != nil {
		resume, err := markerOf(frame.Resume)
		if err != nil {
			return nil, fmt.Errorf("data_loss.resume: %w", err)
		}
		loss.Resume = resume
	}
	return &lossItem{loss}, s.keep(f, proto.Size(frame), Datamarker{})
}

func (s *session) chunkEnd(f *flow, frame *wirev1.ChunkEnd) (item, error) {
	if err := f.betweenTransactions("chunk_end"); err != nil {
		return nil, err
	}
	schema := s.schemas[frame.Schema]
	if schema == nil {
		return nil, fmt.Errorf("chunk_end.schema: %#016x was not sent on this stream", frame.Schema)
	}
	if err := checkChunkEnd(frame, schema); err != nil {
		return nil, err
	}
	data, err := proto.Marshal(frame) // its keys as objects take many times the memory
	if err != nil {
		return nil, err
	}
	return &rangeItem{data, schema}, s.keep(f, len(data), Datamarker{})
}

func (s *session) scanEnd(f *flow, frame *wirev1.ScanEnd) (item, error) {
	if err := f.betweenTransactions("scan_end"); err != nil {
		return nil, err
	}
	if characters := utf8.RuneCountInString(frame.Table); characters == 0 || characters > mostName {
		return nil, fmt.Errorf("scan_end.table: 1 to %d characters are allowed", mostName)
	}
	if frame.Generation != f.generation {
		return nil, fmt.Errorf("scan_end.generation: %d; the flow was assigned in %d", frame.Generation, f.generation)
	}
	return &scanEndItem{frame.Table, frame.Rows}, s.keep(f, proto.Size(frame), Datamarker{})
}

// keep counts a frame that is kept in the flow until a datamarker is acknowledged: its own or a later one.
func (s *session) keep(f *flow, size int, marker Datamarker) error {
	size = waitingBytes + 2*size
	f.keep(size, marker)
	return s.state.charge(size, "what waits for shard "+shortened(f.shard))
}

// hasRoom reports whether the batch of the flow fits beyond its credit. If not, the publisher has to send it again.
func (s *session) hasRoom(f *flow) bool {
	more := int(f.excess()) - int(f.charged)
	if more <= 0 {
		return true
	}
	if err := s.large.charge(more, fmt.Sprintf("a batch of %d bytes", f.inFlight)); err != nil {
		s.fail(f, wirev1.Failed_RESEND, "", err.Error(), nil)
		return false
	}
	f.charged += uint64(more)
	return true
}

// --- time ---

// tick handles the passing of time: it sends a heartbeat that is due, or notices that the other side is gone.
func (s *session) tick(now time.Time) []event {
	switch {
	case s.isClosed:
		return nil
	case s.heartbeat == 0:
		if now.Sub(s.heard) >= helloTimeout {
			return []event{s.refuse(fmt.Errorf("no Hello within %s", helloTimeout))}
		}
	case now.Sub(s.heard) >= silentHeartbeats*s.heartbeat:
		return []event{s.close(fmt.Sprintf("nothing heard from the publisher for %s", now.Sub(s.heard)), false)}
	case now.Sub(s.spoke) >= s.heartbeat:
		s.beats++
		beat := &wirev1.Heartbeat{Number: s.beats}
		s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Heartbeat{Heartbeat: beat}})
		s.spoke = now
	}
	return nil
}

// silenceLimit returns how long the publisher may be silent, or leave our frames unread.
func (s *session) silenceLimit() time.Duration {
	if s.heartbeat == 0 {
		return helloTimeout
	}
	return silentHeartbeats * s.heartbeat
}

// deadline returns when tick has to be called next.
func (s *session) deadline() time.Time {
	deadline := s.heard.Add(s.silenceLimit())
	if s.heartbeat == 0 {
		return deadline
	}
	for _, next := range []time.Time{s.spoke.Add(s.heartbeat), s.reportAt} {
		if next.Before(deadline) {
			deadline = next
		}
	}
	return deadline
}

// reportDue reports whether the flows should report their figures, which is about once a heartbeat.
func (s *session) reportDue(now time.Time) bool {
	if s.heartbeat == 0 || s.isClosed || now.Before(s.reportAt) {
		return false
	}
	s.reportAt = now.Add(s.heartbeat)
	return true
}

// --- out ---

// has returns the flow if it still has this epoch, otherwise nil.
func (s *session) has(number uint32, epoch uint64) *flow {
	f := s.flows[number]
	if f == nil || f.epoch != epoch || s.isClosed {
		return nil
	}
	return f
}

func (s *session) accept(f *flow, credit uint64, have Datamarker, move uint64) {
	if f.phase != phaseAssigned {
		return // it was revoked meanwhile
	}
	f.phase = phaseOpen
	f.credit = credit
	s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Accepted{Accepted: &wirev1.Accepted{
		Flow: f.number, Epoch: f.epoch, Credit: credit, Have: have.message, Move: move,
	}}})
}

// progress reports batches up to number. It returns whether the report should be sent at once.
func (s *session) progress(f *flow, number uint64) bool {
	f.progress(number)
	if f.charged > 0 && f.excess() == 0 {
		s.large.release(int(f.charged))
		f.charged = 0
	}
	s.out.answerOf(f).progress = number
	return f.owesCredit()
}

func (s *session) ack(f *flow, marker Datamarker) {
	s.state.release(f.acknowledged(marker))
	s.out.answerOf(f).marker = marker
}

// release gives the flow back. marker: the last one that was acknowledged in its epoch.
func (s *session) release(f *flow, marker Datamarker) {
	s.out.flushFlow(f)
	released := &wirev1.Released{Flow: f.number, Epoch: f.epoch, Marker: marker.message}
	s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Released{Released: released}})
	s.forget(f)
}

// held is the epoch of a shard that this process holds.
type held struct {
	epoch     uint64
	by        string
	contested bool
}

// fail says that the flow cannot go on here. It stays known, so that the publisher may revoke it.
func (s *session) fail(f *flow, reason wirev1.Failed_Reason, update, message string, held *held) {
	s.out.flushFlow(f)
	failed := &wirev1.Failed{
		Flow: f.number, Epoch: f.epoch, Reason: reason, UpdateId: update, Message: shortened(message),
	}
	if held != nil {
		failed.HeldEpoch, failed.HeldBy, failed.Contested = held.epoch, held.by, held.contested
	}
	s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Failed{Failed: failed}})
	if f.phase != phaseRevoked {
		f.close(phaseFailed)
	}
}

// park has an update stored by the publisher. parkAnswered is the answer.
func (s *session) park(f *flow, update string, body, schema []byte, place place, why string) {
	s.out.flushFlow(f)
	for {
		piece := body[:min(len(body), parkPiece)]
		body = body[len(piece):]
		park := &wirev1.Park{Flow: f.number, Epoch: f.epoch, UpdateId: update, Body: piece, More: len(body) > 0}
		if !park.More {
			park.Schema, park.Place, park.Error = schema, place.message(), why
		}
		s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Park{Park: park}})
		if !park.More {
			return
		}
	}
}

// report sends the figures of a flow's callbacks, if they changed.
func (s *session) report(f *flow, figures *wirev1.HandlerReport) {
	if !proto.Equal(f.reported, figures) {
		f.reported = figures
		report := &wirev1.Report{Flow: f.number, Epoch: f.epoch, Handler: figures}
		s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Report{Report: report}})
	}
}

func (s *session) decideLoss(f *flow, proceed bool) {
	f.deciding = false
	s.out.flushFlow(f)
	decision := &wirev1.LossDecision{Flow: f.number, Epoch: f.epoch, Proceed: proceed}
	s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_LossDecision{LossDecision: decision}})
}

// goodbye sends the last frame of the stream.
func (s *session) goodbye(reason wirev1.Goodbye_Reason, message, hint string) {
	s.out.flush()
	goodbye := &wirev1.Goodbye{Reason: reason, Message: shortened(message), Hint: shortened(hint)}
	s.out.add(&wirev1.SubscriberFrame{Kind: &wirev1.SubscriberFrame_Goodbye{Goodbye: goodbye}})
	s.end()
}

// refuse ends the stream, because the publisher broke the protocol.
func (s *session) refuse(err error) closed {
	s.goodbye(wirev1.Goodbye_PROTOCOL, err.Error(),
		"compare the releases on both sides; the publisher's frames are described in docs/wire.md")
	return closed{cause: err.Error()}
}

func (s *session) close(cause string, expected bool) closed {
	s.end()
	return closed{cause: cause, expected: expected}
}

// end says that the stream is over.
func (s *session) end() {
	s.isClosed = true
	s.peer.gone.Store(true)
}

// forget sends nothing more for the flow, and drops its late frames.
func (s *session) forget(f *flow) {
	delete(s.flows, f.number)
	s.state.release(f.kept)
	s.large.release(int(f.charged))
	if s.ofShard[f.shard] == f {
		delete(s.ofShard, f.shard)
	}
	s.dropAnswer(f)
	if _, known := s.gone[f.number]; !known {
		s.goneOrder = append(s.goneOrder, f.number)
	}
	s.gone[f.number] = f.epoch
	if len(s.goneOrder) > rememberedFlows {
		delete(s.gone, s.goneOrder[0])
		s.goneOrder = s.goneOrder[1:]
	}
}

func (s *session) dropAnswer(f *flow) {
	if f.answer != nil {
		*f.answer = answer{flow: f}
	}
}

// takeOutput returns the waiting frames as one message; nil if none waits.
func (s *session) takeOutput(now time.Time) ([]byte, error) {
	data, err := s.out.take()
	if data != nil {
		s.spoke = now
	}
	return data, err
}

// shortened cuts a text, which may fill a message, or come from an error and be no UTF-8.
func shortened(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) <= longestText {
		return text
	}
	return string([]rune(text)[:longestText]) + "..."
}
