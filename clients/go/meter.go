package wormhole

import (
	"context"
	"fmt"
	"sync"
	"time"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

// meter surrounds the callbacks of one epoch: it cancels the context of one that takes too long, and has the figures
// that are reported to the publisher. Callbacks that end in time share one context and one timer.
type meter struct {
	parent context.Context
	limit  time.Duration

	mu      sync.Mutex
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	running bool
	started time.Time
	update  *Update // that the running callback is about
	figures wirev1.HandlerReport
}

// begin returns the context of a callback that begins now. update may be nil.
func (m *meter) begin(update *Update) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		m.ctx, m.cancel = context.WithCancelCause(m.parent)
	}
	m.running, m.started, m.update = true, time.Now(), update
	if m.timer == nil {
		m.timer = time.AfterFunc(m.limit, m.expire)
	}
	return m.ctx
}

// end records that the callback returned. updates is how many it processed.
func (m *meter) end(updates int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := time.Since(m.started).Seconds()
	m.figures.BusyS += took
	m.figures.Updates += uint64(updates)
	if err != nil {
		m.figures.Failures++
	}
	if m.update != nil && took > m.figures.SlowestS {
		m.figures.SlowestS, m.figures.SlowestTable = took, m.update.Table()
	}
	m.running, m.update = false, nil
}

func (m *meter) count(skipped, parked uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.figures.Skipped += skipped
	m.figures.Parked += parked
}

func (m *meter) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		m.timer = nil // the next callback sets another one
		return
	}
	left := m.limit - time.Since(m.started)
	if left > 0 {
		m.timer.Reset(left)
		return
	}
	m.timer = nil
	m.cancel(fmt.Errorf("the callback runs for longer than %s", m.limit))
}

// report returns the figures, with the slowest callback since the report before.
func (m *meter) report(queued int) *wirev1.HandlerReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.figures
	report := &wirev1.HandlerReport{
		Updates: f.Updates, BusyS: f.BusyS, Failures: f.Failures, Skipped: f.Skipped, Parked: f.Parked,
		SlowestTable: f.SlowestTable, SlowestS: f.SlowestS, QueuedBytes: uint64(queued),
	}
	f.SlowestTable, f.SlowestS = "", 0
	if m.running && m.update != nil {
		report.RunningUpdate, report.RunningS = m.update.ID(), time.Since(m.started).Seconds()
	}
	return report
}

func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.cancel != nil {
		m.cancel(context.Canceled)
	}
}
