package wormhole

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	leastCredit = 64 << 10 // less would cost a round trip every few updates
	keptIdle    = 4096     // shards that this process does not have, whose epochs it remembers
)

// shards knows which epoch of which shard is at work in this process, over all streams. One epoch of a shard works at a
// time: a newer one waits until the callbacks of the older one have ended.
type shards struct {
	client *client

	mu      sync.Mutex
	known   map[string]*shard
	workers map[*worker]struct{}
	granted uint64 // credit of all workers
	leaving bool
	clock   uint64 // counts assignments
}

type shard struct {
	name     string
	retry    *retry
	epoch    uint64 // the highest so far
	holder   *peer  // the publisher that assigned it
	worker   *worker
	assigned uint64 // when, by the clock
}

func newShards(c *client) *shards {
	return &shards{client: c, known: make(map[string]*shard), workers: make(map[*worker]struct{})}
}

// refusal returns why the publisher may not have the shard; nil: it may. The higher epoch wins. In the same epoch the
// first of two publishers keeps the shard, also against one that yields, because two that do not know of each other
// would otherwise take it from each other without end.
func (s *shard) refusal(p *peer, a *assignment) *held {
	other := s.holder != nil && p.differs(s.holder)
	contested := other && !s.holder.gone.Load()
	stale := a.Epoch < s.epoch || (a.Epoch == s.epoch && other)
	if !stale && !(a.Yields && contested) {
		return nil
	}
	h := &held{epoch: s.epoch, contested: contested}
	if s.holder != nil {
		h.by = s.holder.name
	}
	return h
}

// assign begins to work on a flow. It returns nil if that was refused, by an answer through the port.
func (ss *shards) assign(p port, a *assignment) (*worker, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.known[a.Shard]
	if s == nil {
		s = &shard{name: a.Shard, retry: &retry{policy: ss.client.options.Retry}}
		ss.known[a.Shard] = s
	}
	ss.clock++
	s.assigned = ss.clock
	publisher := p.stream.peer
	if refused := s.refusal(publisher, a); refused != nil {
		message := fmt.Sprintf("epoch %d of shard %s is refused: it is held here in epoch %d", a.Epoch, a.Shard, refused.epoch)
		ss.client.log.Warn(message, "publisher", publisher.name, "held_by", refused.by)
		p.fail(wirev1.Failed_STALE_EPOCH, "", message, refused)
		return nil, nil
	}
	if ss.leaving {
		s.holder, s.epoch = publisher, a.Epoch
		releaseAfter(s.worker, p)
		return nil, nil
	}
	if err := p.stream.session.state.charge(flowBytes, "shard "+shortened(a.Shard)); err != nil {
		return nil, err
	}
	before, former := s.worker, s.holder
	s.holder, s.epoch = publisher, a.Epoch
	if before != nil {
		before.end(cut, fmt.Sprintf("epoch %d was assigned", a.Epoch))
		if former != nil && publisher.differs(former) {
			// Otherwise it would go on to send updates that this process ignores.
			message := fmt.Sprintf("shard %s was taken by publisher %s in epoch %d", a.Shard, publisher.name, a.Epoch)
			ss.client.log.Error(message, "former", former.name)
			before.port.fail(wirev1.Failed_STALE_EPOCH, "", message, &held{a.Epoch, publisher.name, true})
		}
	}
	w := newWorker(ss.client, p, a, s.retry, ss.credit())
	s.worker = w
	ss.workers[w] = struct{}{}
	ss.granted += w.credit
	ss.client.log.Info("a shard is served", "shard", a.Shard, "epoch", a.Epoch, "from", a.marker, "publisher", publisher.name)
	go func() {
		w.run(before)
		ss.ended(w, s)
	}()
	ss.forgetIdle()
	return w, nil
}

func (ss *shards) ended(w *worker, s *shard) {
	w.port.stream.session.state.release(flowBytes)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.workers, w)
	ss.granted -= w.credit
	if s.worker == w {
		s.worker = nil
	}
}

// releaseAfter gives a flow back that was not taken, when the callbacks of an earlier epoch of its shard have ended.
func releaseAfter(w *worker, p port) {
	if w == nil {
		p.release(Datamarker{})
		return
	}
	go func() {
		<-w.done
		p.release(Datamarker{})
	}()
}

// credit returns at most half of what is left, so that a later flow always gets some.
func (ss *shards) credit() uint64 {
	options := &ss.client.options
	left := max(0, int64(options.Buffer)-int64(ss.granted))
	return min(uint64(options.Credit), max(leastCredit, uint64(left)/2))
}

// forgetIdle bounds the memory for shards without a flow here: those assigned longest ago are forgotten first.
func (ss *shards) forgetIdle() {
	if len(ss.known)-len(ss.workers) <= keptIdle {
		return
	}
	var idle []*shard
	for _, s := range ss.known {
		if s.worker == nil {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b *shard) int { return cmp.Compare(a.assigned, b.assigned) })
	for _, s := range idle[:max(0, len(idle)-keptIdle/2)] {
		delete(ss.known, s.name)
	}
}

// leave begins no new callback, and waits for running ones. It returns whether they ended in time.
func (ss *shards) leave(timeout time.Duration) bool {
	ss.mu.Lock()
	ss.leaving = true
	workers := slices.Collect(maps.Keys(ss.workers))
	ss.mu.Unlock()
	for _, w := range workers {
		w.end(leaving, "this subscriber leaves")
	}
	late := time.After(timeout)
	for _, w := range workers {
		select {
		case <-w.done:
		case <-late:
			return false
		}
	}
	return true
}
