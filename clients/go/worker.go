package wormhole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

// mostTogether is how many serialized bytes of updates are delivered in one call. Their rows can take 24 times as many.
const mostTogether = 1 << 20

// The items that a flow works on, in the order in which they arrived.
type (
	item any

	// batchItem is a batch. Its body stays serialized while it waits, because its rows take several times the memory.
	batchItem struct {
		number     uint64
		replayed   bool
		body       []byte
		unfinished bool // its last transaction goes on in the next batch
	}
	markerItem struct{ marker Datamarker }
	replayItem struct{ begin, latest bool }
	lossItem   struct{ loss DataLoss }
	rangeItem  struct {
		frame  []byte // a serialized ChunkEnd
		schema *Schema
	}
	scanEndItem struct {
		table string
		rows  uint64
	}
)

// ending is why an epoch of a flow ends at this subscriber.
type ending uint8

const (
	going   ending = iota
	taken          // revoked by the publisher
	leaving        // this subscriber leaves
	cut            // a newer epoch was assigned
	lost           // the connection to the publisher was lost
)

// worker runs the callbacks of one epoch of one flow, in a goroutine of its own:
//
//	OnAssigned { OnUpdate | OnDatamarker | OnDataLoss | OnReplay | OnChunkEnd | OnScanEnd } OnRevoked
//
// If the process dies at any point, nothing was acknowledged whose callback had not returned.
type worker struct {
	client   *client
	port     port
	assigned *assignment
	retry    *retry // of the shard
	gate     *gate
	meter    meter
	credit   uint64
	log      *slog.Logger

	over chan struct{} // closed when the epoch ends: no new callback begins
	done chan struct{} // closed when no callback runs any more
	wake chan struct{}

	mu         sync.Mutex
	queue      []item
	queued     int // bytes of bodies
	ending     ending
	cause      string
	parking    string // id of the update whose answer is awaited
	parkAnswer chan string

	// Only the goroutine uses these.
	marker     Datamarker // where a rollback leads
	acked      Datamarker // the last one that was acknowledged in this epoch
	stopped    bool       // this subscriber gave the epoch up, and only waits for its end
	unfinished bool       // callbacks of an item that was taken have not all returned
	notified   bool       // OnAssigned was called, so OnRevoked has to follow
	last       *Update    // the last update of an unfinished transaction, which waits for what follows
}

func newWorker(c *client, p port, a *assignment, r *retry, credit uint64) *worker {
	return &worker{
		client:     c,
		port:       p,
		assigned:   a,
		retry:      r,
		gate:       newGate(a),
		meter:      meter{parent: c.hard, limit: c.options.HandlerTimeout},
		credit:     credit,
		log:        c.log.With("shard", a.Shard, "epoch", a.Epoch),
		over:       make(chan struct{}),
		done:       make(chan struct{}),
		wake:       make(chan struct{}, 1),
		parkAnswer: make(chan string, 1),
		marker:     a.marker,
	}
}

// --- called from outside ---

// feed adds an item. Of consecutive datamarkers only the newest stays.
func (w *worker) feed(next item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending != going {
		return
	}
	if _, isMarker := next.(*markerItem); isMarker && len(w.queue) > 0 {
		if _, follows := w.queue[len(w.queue)-1].(*markerItem); follows {
			w.queue[len(w.queue)-1] = next
			return
		}
	}
	w.queue = append(w.queue, next)
	if batch, ok := next.(*batchItem); ok {
		w.queued += len(batch.body)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// end begins no new callback. It returns whether this is the first end, whose reason stays.
func (w *worker) end(why ending, cause string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending != going {
		return false
	}
	w.ending, w.cause = why, cause
	close(w.over)
	return true
}

func (w *worker) answered(update, refused string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parking == update {
		w.parking = ""
		w.parkAnswer <- refused
	}
}

func (w *worker) report() *wirev1.HandlerReport {
	w.mu.Lock()
	queued := w.queued
	w.mu.Unlock()
	return w.meter.report(queued)
}

// --- the epoch ---

// run works until the epoch ends. before is the worker of an earlier epoch, whose callbacks have to end first.
func (w *worker) run(before *worker) {
	defer close(w.done)
	defer w.meter.close()
	if before != nil {
		<-before.done
	}
	if !w.isOver() {
		w.open()
	}
	for !w.isOver() {
		if next := w.take(); next != nil {
			w.unfinished = true
			w.unfinished = !w.work(next)
			continue
		}
		select {
		case <-w.wake:
		case <-w.over:
		}
	}
	w.close()
}

func (w *worker) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

func (w *worker) take() item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || len(w.queue) == 0 {
		return nil
	}
	next := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	if batch, ok := next.(*batchItem); ok {
		w.queued -= len(batch.body)
	}
	return next
}

// call runs one callback.
func (w *worker) call(update *Update, updates int, callback func(ctx context.Context) error) error {
	err := callback(w.meter.begin(update))
	if err != nil {
		updates = 0
	}
	w.meter.end(updates, err)
	return err
}

func (w *worker) open() {
	a := w.assigned
	w.notified = true
	var have Datamarker
	var move uint64
	if handler, ok := w.client.handler.(AssignedHandler); ok {
		kept, ok := w.askKept(handler)
		if !ok {
			return
		}
		if have, move = usable(kept, a); kept != nil && have.IsZero() {
			w.log.Warn("the shard was set to another place: delivery begins there, not where the application continues",
				"marker", a.marker, "kept", kept.Marker)
		}
		if !have.IsZero() {
			w.marker = have
		}
	}
	if a.RolledBack != "" && !w.undo(&TransactionRolledBackError{a.RolledBack}) {
		return
	}
	w.port.answer(func(s *session, f *flow) { s.accept(f, w.credit, have, move) })
}

// askKept returns false if the epoch does not go on.
func (w *worker) askKept(handler AssignedHandler) (kept *Kept, ok bool) {
	a := w.assigned
	notice := Assigned{
		Application: w.client.options.Application, Dataset: w.port.stream.peer.dataset, Log: w.port.stream.peer.log,
		Shard: a.Shard, Epoch: a.Epoch, Generation: a.Generation, Marker: a.marker,
		Rewound: a.Rewound, Move: a.Move, Acknowledged: a.Acknowledged,
	}
	var refused *EpochRefusedError
	ok = w.retried(func(ctx context.Context) (err error) {
		kept, err = handler.OnAssigned(ctx, notice)
		if errors.As(err, &refused) && a.Epoch <= refused.Held && refused.Held < 1<<63 {
			return nil
		}
		refused = nil
		return err
	})
	if !ok || refused == nil {
		return kept, ok
	}
	message := fmt.Sprintf("epoch %d of shard %s is refused: %v", a.Epoch, a.Shard, refused)
	w.log.Warn(message)
	w.stopped = true
	w.port.fail(wirev1.Failed_STALE_EPOCH, "", message, &held{epoch: refused.Held})
	return nil, false
}

// usable returns the datamarker where the application continues, and the move that it stored with it. It is zero if
// there is none, or if the shard was moved since.
func usable(kept *Kept, a *assignment) (Datamarker, uint64) {
	if kept == nil || kept.Marker.IsZero() {
		return Datamarker{}, 0
	}
	move := kept.Move
	if kept.Unnumbered {
		move = 0
	}
	isFromBefore := move < a.Move
	isLater := kept.Marker.Order().Compare(a.marker.Order()) > 0
	if (isFromBefore && !kept.Unnumbered) || (isLater && a.Rewound && (a.Move == 0 || isFromBefore)) {
		return Datamarker{}, 0
	}
	return kept.Marker, move
}

// close ends the epoch. A datamarker without unfinished work before it is still acknowledged, so that the next
// subscriber of the shard repeats nothing.
func (w *worker) close() {
	w.mu.Lock()
	why, cause, queue := w.ending, w.cause, w.queue
	w.queue, w.queued = nil, 0
	w.mu.Unlock()
	givenBack := why == taken || why == leaving
	if givenBack && !w.stopped && !w.unfinished && w.last == nil && len(queue) > 0 {
		if next, ok := queue[0].(*markerItem); ok {
			if err := w.call(nil, 0, w.onDatamarker(next.marker)); err != nil {
				w.log.Error("OnDatamarker failed as the shard goes; its last updates come again", "error", err)
			} else {
				w.acknowledge(next.marker)
			}
		}
	}
	if handler, ok := w.client.handler.(RevokedHandler); ok && w.notified {
		notice := Revoked{w.assigned.Shard, w.assigned.Epoch, w.acked, cause}
		err := w.call(nil, 0, func(ctx context.Context) error { return handler.OnRevoked(ctx, notice) })
		if err != nil {
			w.log.Error("OnRevoked failed; the shard goes all the same", "error", err)
		}
	}
	if givenBack {
		w.port.release(w.acked)
	}
	w.log.Info("the shard is no longer served", "acknowledged", w.acked, "cause", cause)
}

// work processes one item. It returns whether all of it was processed.
func (w *worker) work(next item) bool {
	if batch, ok := next.(*batchItem); ok {
		return w.batch(batch)
	}
	if last := w.last; last != nil { // nothing follows it in its transaction
		w.last = nil
		last.EndsTransaction, last.inside = true, false
		if !w.deliver([]*Update{last}) {
			return false
		}
	}
	handler := w.client.handler
	switch next := next.(type) {
	case *markerItem:
		if !w.attempt(w.onDatamarker(next.marker)) {
			return false
		}
		w.acknowledge(next.marker)
	case *replayItem:
		return w.replay(next)
	case *lossItem:
		return w.loss(next.loss)
	case *rangeItem:
		if handler, ok := handler.(ChunkEndHandler); ok {
			return w.chunkEnd(handler, next)
		}
	case *scanEndItem:
		if handler, ok := handler.(ScanEndHandler); ok {
			return w.scanEnd(handler, next)
		}
	}
	return true
}

// onDatamarker returns the callback.
func (w *worker) onDatamarker(marker Datamarker) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if handler, ok := w.client.handler.(DatamarkerHandler); ok {
			return handler.OnDatamarker(ctx, w.assigned.Shard, marker)
		}
		return nil
	}
}

// acknowledge acknowledges a datamarker. One whose stream ended meanwhile is not acknowledged.
func (w *worker) acknowledge(marker Datamarker) {
	w.marker = marker
	w.retry.reset()
	if w.port.answer(func(s *session, f *flow) { s.ack(f, marker) }) {
		w.acked = marker
	}
}

func (w *worker) replay(next *replayItem) bool {
	if next.begin && next.latest && !w.client.options.StateOnly {
		w.halt(errors.New("the replay has only the last change of each key, and the subscriber is not StateOnly: cancel "+
			"it and begin it with --mode log [latest-refused]"), "")
		return false
	}
	handler, ok := w.client.handler.(ReplayHandler)
	if !ok {
		return true
	}
	notice := Replay{w.assigned.Shard, w.assigned.Epoch, next.begin, next.latest}
	return w.attempt(func(ctx context.Context) error { return handler.OnReplay(ctx, notice) })
}

func (w *worker) loss(loss DataLoss) bool {
	decision := LossHalt
	if handler, ok := w.client.handler.(DataLossHandler); ok {
		decided := w.attempt(func(ctx context.Context) (err error) {
			decision, err = handler.OnDataLoss(ctx, loss)
			return err
		})
		if !decided {
			return false
		}
	}
	w.log.Warn("log is missing: "+loss.Message, "continues", decision == LossContinue)
	w.port.answer(func(s *session, f *flow) { s.decideLoss(f, decision == LossContinue) })
	return true
}

func (w *worker) chunkEnd(handler ChunkEndHandler, next *rangeItem) bool {
	frame := &wirev1.ChunkEnd{}
	err := proto.Unmarshal(next.frame, frame)
	if err == nil && (frame.Narrowed || !(frame.Portable || len(frame.Alone) > 0)) {
		return true // nothing follows from it
	}
	var keys KeyRange
	if err == nil {
		keys, err = keysOf(frame, next.schema)
	}
	parked, known, err := w.parkedKeys(next.schema.Table, err)
	if err != nil || !known {
		return err == nil
	}
	keys.Shard, keys.Epoch, keys.Generation = w.assigned.Shard, w.assigned.Epoch, w.assigned.Generation
	keys.Except = append(keys.Except, parked...)
	return w.attempt(func(ctx context.Context) error { return handler.OnChunkEnd(ctx, keys) })
}

// parkedKeys returns the keys of a table whose updates are parked, and false if those of the whole table are. After an
// error, which may be an earlier one, the flow is halted.
func (w *worker) parkedKeys(table string, earlier error) (keys [][]Value, known bool, err error) {
	keys, known, err = w.gate.parkedKeys(table)
	if err = errors.Join(earlier, err); err != nil {
		w.halt(err, "")
	} else if !known {
		w.log.Warn("an end is not reported: an operation on the whole table is parked", "table", table)
	}
	return keys, known, err
}

func (w *worker) scanEnd(handler ScanEndHandler, next *scanEndItem) bool {
	parked, known, err := w.parkedKeys(next.table, nil)
	if err != nil || !known {
		return err == nil
	}
	end := ScanEnd{next.table, w.assigned.Shard, w.assigned.Epoch, w.assigned.Generation, parked, next.rows}
	return w.attempt(func(ctx context.Context) error { return handler.OnScanEnd(ctx, end) })
}

// --- updates ---

func (w *worker) batch(batch *batchItem) bool {
	cursor, err := w.parse(batch)
	if err != nil {
		w.stopped = true
		w.port.refuse(err)
		return false
	}
	_, takesBatches := w.client.handler.(BatchHandler)
	var together []*Update
	size := 0
	next := w.resumed(cursor)
	for next != nil {
		update := next
		if next = cursor.next(); next == nil && update.inside {
			w.last = update // whether it ends its transaction is not known yet
			break
		}
		together = append(together, update)
		size += len(update.raw)
		if !takesBatches || size >= mostTogether || w.isSingle(update) {
			if !w.deliver(together) {
				return false
			}
			together, size = together[:0], 0
		}
	}
	if !w.deliver(together) {
		return false
	}
	w.port.progress(batch.number)
	return true
}

// resumed returns the first update to deliver: the one that waited for this batch, or the first in it.
func (w *worker) resumed(c *cursor) *Update {
	last := w.last
	w.last = nil
	if last == nil {
		return c.next()
	}
	columns := c.columns
	isSame := false
	if len(columns.TxNumber) > 0 {
		first := c.body.transaction(0)
		isSame = first.Source == last.Transaction.Source && first.Number == last.Transaction.Number
		if isSame {
			last.Transaction, last.inside = first, len(columns.TxEnd) == 0
		}
	}
	last.EndsTransaction = !isSame || c.endsFirst()
	if !isSame {
		last.inside = false
	}
	return last
}

func (w *worker) parse(batch *batchItem) (*cursor, error) {
	body, err := parseBody(batch.body)
	if err != nil {
		return nil, fmt.Errorf("%w (shard %s)", err, w.assigned.Shard)
	}
	schemas := make([]*Schema, len(body.columns.SchemaIds))
	for i, id := range body.columns.SchemaIds {
		if schemas[i] = w.port.schema(id); schemas[i] == nil {
			return nil, fmt.Errorf("batch.body.schema_ids: %#016x in batch %d was not sent on this stream", id, batch.number)
		}
	}
	return &cursor{body: body, assigned: w.assigned, schemas: schemas, replayed: batch.replayed}, nil
}

// deliver skips, parks or processes updates, in order. It returns whether that was done with all of them; false: the
// epoch ended or stopped.
func (w *worker) deliver(updates []*Update) bool {
	ready := updates[:0]
	for _, update := range updates {
		if w.isOver() {
			return false
		}
		if w.gate.skips(update) {
			w.log.Warn("an update is skipped, as an operator asked", "update", update.ID())
			w.meter.count(1, 0)
			continue
		}
		err := update.decode()
		parks := false
		if err == nil {
			parks, err = w.gate.holds(update)
		}
		if err == nil && !parks {
			ready = append(ready, update)
			continue
		}
		if !w.process(ready) {
			return false
		}
		ready = ready[len(ready):]
		if err != nil {
			w.halt(fmt.Errorf("update %s is no valid row: %w", update.ID(), err), update.ID())
			return false
		}
		if !w.park(update, nil) {
			return false
		}
	}
	return w.process(ready)
}

// process calls the handler with updates until it returns, or they are parked.
func (w *worker) process(updates []*Update) bool {
	if len(updates) == 0 {
		return true
	}
	for !w.isOver() {
		err := w.call(updates[0], len(updates), func(ctx context.Context) error {
			if handler, ok := w.client.handler.(BatchHandler); ok {
				return handler.OnUpdates(ctx, updates)
			}
			return w.client.handler.OnUpdate(ctx, updates[0])
		})
		if err == nil {
			return true
		}
		wait, again := w.count(err, updates[0])
		switch {
		case again:
			if !w.rolledBackOrPaused(err, updates[0].ID(), wait) {
				return false
			}
		case !w.gate.parks:
			w.halt(err, updates[0].ID())
			return false
		case len(updates) > 1:
			return w.processSingly(updates, err)
		default:
			if !w.park(updates[0], err) {
				return false
			}
			w.retry.reset()
			return w.rolledBackOrPaused(err, updates[0].ID(), 0)
		}
	}
	return false
}

// processSingly searches for the update that fails among several.
func (w *worker) processSingly(updates []*Update, err error) bool {
	w.log.Warn("several updates failed at once: now one by one", "updates", len(updates))
	until := updates[len(updates)-1].place()
	w.retry.reset()
	w.retry.singlyUntil = &until
	if !w.rolledBackOrPaused(err, updates[0].ID(), 0) {
		return false
	}
	for i := range updates {
		if !w.process(updates[i : i+1]) {
			return false
		}
	}
	return true
}

// isSingle reports whether the update is delivered alone, because it or an update near it failed.
func (w *worker) isSingle(update *Update) bool {
	until := w.retry.singlyUntil
	if until != nil && until.before(update.place()) {
		w.retry.singlyUntil = nil
		return false
	}
	return until != nil
}

// park has the publisher store the update in place of its callback. It returns whether it is durable.
func (w *worker) park(update *Update, cause error) bool {
	rows, err := update.rows()
	var body []byte
	if err == nil {
		body, err = update.alone()
	}
	if err != nil {
		w.halt(err, update.ID())
		return false
	}
	id, why := update.ID(), ""
	if cause != nil {
		why = shortened(strings.Join(strings.Fields(cause.Error()), " "))
	}
	w.mu.Lock()
	w.parking = id
	w.mu.Unlock()
	w.port.answer(func(s *session, f *flow) { s.park(f, id, body, update.Schema.canonical, update.place(), why) })
	select {
	case <-w.over:
		return false
	case refused := <-w.parkAnswer:
		if refused != "" {
			w.halt(fmt.Errorf("the publisher does not park the update: %s", refused), id)
			return false
		}
	}
	w.gate.parked(update, rows)
	w.meter.count(0, 1)
	w.log.Warn("an update is parked", "update", id, "error", why)
	return true
}

// --- failures ---

// attempt calls a callback that is not for updates until it returns nil. It returns false if the epoch ended or
// stopped.
func (w *worker) attempt(callback func(ctx context.Context) error) bool {
	return w.repeat(callback, func(err error, wait time.Duration) bool { return w.rolledBackOrPaused(err, "", wait) })
}

// retried is as attempt, but nothing is rolled back.
func (w *worker) retried(callback func(ctx context.Context) error) bool {
	return w.repeat(callback, func(_ error, wait time.Duration) bool {
		w.pause(wait)
		return true
	})
}

func (w *worker) repeat(
	callback func(ctx context.Context) error, goesOn func(err error, wait time.Duration) bool,
) bool {
	for !w.isOver() {
		err := w.call(nil, 0, callback)
		if err == nil {
			return true
		}
		wait, again := w.count(err, nil)
		if !again {
			w.halt(err, "")
			return false
		}
		if !goesOn(err, wait) {
			return false
		}
	}
	return false
}

// count counts a failure. It returns how long to wait before another try, and whether one follows.
func (w *worker) count(err error, update *Update) (wait time.Duration, again bool) {
	var at *place
	id := ""
	if update != nil {
		place := update.place()
		at, id = &place, update.ID()
	}
	again = w.retry.failed(at) && !isPermanent(err)
	wait = w.retry.policy.wait(w.retry.failures, rand.Float64())
	w.log.Warn("a callback failed", "error", err, "update", id, "failures", w.retry.failures, "again", again)
	return wait, again
}

// rolledBackOrPaused waits before another try, and returns true. A transactional application undoes what it did since the
// datamarker instead, and the updates since come in a new epoch: then this returns false.
func (w *worker) rolledBackOrPaused(cause error, update string, wait time.Duration) bool {
	if !w.client.options.Transactional {
		w.pause(wait)
		return true
	}
	if !w.undo(cause) {
		return false
	}
	w.pause(wait)
	w.stopped = true
	w.port.fail(wirev1.Failed_RESEND, update, fmt.Sprintf("rolled back to %s: %v", w.marker, cause), nil)
	return false
}

// undo has the application return to the datamarker. It returns false if the epoch ended or stopped.
func (w *worker) undo(cause error) bool {
	handler, ok := w.client.handler.(RollbackHandler)
	if !ok {
		w.log.Warn("the application has no OnRollback: what it did with these updates stays", "cause", cause)
		return true
	}
	rollback := Rollback{w.assigned.Shard, w.assigned.Epoch, w.marker, cause}
	return w.retried(func(ctx context.Context) error { return handler.OnRollback(ctx, rollback) })
}

// pause waits, but not beyond the epoch's end.
func (w *worker) pause(wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-w.over:
	}
}

// halt stops the flow until this process restarts.
func (w *worker) halt(err error, update string) {
	w.stopped = true
	w.retry.reset() // the next assignment of the shard begins with a fresh count
	w.port.fail(wirev1.Failed_HANDLER, update, err.Error(), nil)
	w.log.Error("the shard halts", "error", err, "update", update)
	if handler, ok := w.client.handler.(HaltedHandler); ok {
		halted := Halted{w.assigned.Shard, w.assigned.Epoch, update, w.marker, err}
		_ = w.call(nil, 0, func(ctx context.Context) error {
			handler.OnHalted(ctx, halted)
			return nil
		})
	}
}
