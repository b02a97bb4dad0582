package wormhole

import (
	"fmt"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

type phase uint8

const (
	phaseAssigned phase = iota // Accepted was not sent, so the publisher may send nothing
	phaseOpen
	phaseFailed  // frames are dropped until the publisher revokes or assigns again
	phaseRevoked // Released was not sent
)

const (
	leastBody     = 64 // bytes: a body with one update has more
	leastInFlight = 1024
)

// flow is one epoch of one flow on its stream: what it may receive. It is pure: no clock, no I/O.
type flow struct {
	number     uint32
	epoch      uint64
	shard      string
	generation uint64
	phase      phase
	credit     uint64
	maxBody    uint64

	last       uint64 // number of the newest batch that began
	unfinished bool   // its last transaction goes on in the next one
	inFlight   uint64 // bytes that were not reported as progress
	unsaid     uint64 // bytes that were processed, which the publisher does not know yet
	bodies     []bodySize

	joining    []byte // the parts of a batch so far; nil between batches
	joined     uint32 // how many they are
	totalBytes uint64

	kept     int // bytes charged to the stream until they are acknowledged
	waiting  []keptFrame
	charged  uint64 // bytes over the credit that are charged to the stream
	deciding bool   // a loss of log was reported that is not decided
	reported *wirev1.HandlerReport
	answer   *answer // that waits in the outbox
}

type bodySize struct{ number, size uint64 }

// keptFrame is a frame that is kept until a datamarker is acknowledged: its own marker, or a later one.
type keptFrame struct {
	marker Datamarker // zero: another frame
	size   int
}

func (f *flow) broken(kind, field, format string, args ...any) error {
	return fmt.Errorf("%s.%s of flow %d epoch %d: %s", kind, field, f.number, f.epoch, fmt.Sprintf(format, args...))
}

func (f *flow) opened(kind string) error {
	if f.phase == phaseAssigned {
		return f.broken(kind, "flow", "came before Accepted was sent")
	}
	return nil
}

// between checks a frame that comes between batches.
func (f *flow) between(kind string) error {
	if f.joining != nil {
		return f.broken(kind, "flow", "came amid the parts of batch %d", f.last)
	}
	return f.opened(kind)
}

// betweenTransactions checks a frame of a backfill.
func (f *flow) betweenTransactions(kind string) error {
	if err := f.between(kind); err != nil {
		return err
	}
	if f.generation == 0 {
		return f.broken(kind, "flow", "came to a flow that was assigned without a generation")
	}
	if f.unfinished {
		return f.broken(kind, "flow", "came amid a transaction, which goes on behind batch %d", f.last)
	}
	return nil
}

func (f *flow) begin(kind, field string, number, size uint64) error {
	switch {
	case number != f.last+1:
		return f.broken(kind, "number", "%d came where %d was due", number, f.last+1)
	case size == 0:
		return f.broken(kind, field, "empty")
	case size > f.maxBody:
		return f.broken(kind, field, "%d bytes; at most %d are taken", size, f.maxBody)
	case f.inFlight > 0 && f.inFlight+size > f.credit:
		return f.broken(kind, field, "%d bytes with %d in flight go over the credit of %d", size, f.inFlight, f.credit)
	case uint64(len(f.bodies)) >= max(leastInFlight, f.credit/leastBody):
		return f.broken(kind, "number", "%d batches are in flight, with %d bytes", len(f.bodies), f.inFlight)
	}
	f.last = number
	f.inFlight += size
	f.bodies = append(f.bodies, bodySize{number, size})
	return nil
}

// batch takes a whole batch.
func (f *flow) batch(frame *wirev1.Batch) error {
	if err := f.between("batch"); err != nil {
		return err
	}
	if err := f.begin("batch", "body", frame.Number, uint64(len(frame.Body))); err != nil {
		return err
	}
	f.unfinished = frame.Unfinished
	return nil
}

// part takes a part. It returns the whole body if this was the last one.
func (f *flow) part(frame *wirev1.Part) ([]byte, error) {
	if err := f.opened("part"); err != nil {
		return nil, err
	}
	if f.joining == nil {
		if frame.Index != 0 {
			return nil, f.broken("part", "index", "%d begins a batch; 0 was due", frame.Index)
		}
		if err := f.begin("part", "total_bytes", frame.Number, frame.TotalBytes); err != nil {
			return nil, err
		}
		f.joining, f.joined, f.totalBytes = []byte{}, 0, frame.TotalBytes
	}
	switch {
	case frame.Number != f.last:
		return nil, f.broken("part", "number", "%d comes amid the parts of batch %d", frame.Number, f.last)
	case frame.Index != f.joined:
		return nil, f.broken("part", "index", "%d came where %d was due", frame.Index, f.joined)
	case frame.TotalBytes != f.totalBytes:
		return nil, f.broken("part", "total_bytes", "%d here, %d in the first part", frame.TotalBytes, f.totalBytes)
	case len(frame.Data) == 0:
		return nil, f.broken("part", "data", "empty")
	}
	got := uint64(len(f.joining) + len(frame.Data))
	if got > f.totalBytes || (frame.Last && got != f.totalBytes) {
		return nil, f.broken("part", "data", "%d bytes so far, total_bytes is %d", got, f.totalBytes)
	}
	f.joining = append(f.joining, frame.Data...)
	f.joined++
	if !frame.Last {
		return nil, nil
	}
	whole := f.joining
	f.joining = nil
	f.unfinished = frame.Unfinished
	return whole, nil
}

// progress returns the credit of batches up to number.
func (f *flow) progress(number uint64) {
	for len(f.bodies) > 0 && f.bodies[0].number <= number {
		f.inFlight -= f.bodies[0].size
		f.unsaid += f.bodies[0].size
		f.bodies = f.bodies[1:]
	}
}

// owesCredit reports whether the publisher lacks so much credit that it may have to wait.
func (f *flow) owesCredit() bool { return 4*f.unsaid >= f.credit }

// excess returns the bytes by which the batch in flight, which was sent alone, is larger than the credit.
func (f *flow) excess() uint64 {
	if f.inFlight <= f.credit {
		return 0
	}
	return f.inFlight - f.credit
}

func (f *flow) keep(size int, marker Datamarker) {
	f.waiting = append(f.waiting, keptFrame{marker, size})
	f.kept += size
}

// acknowledged returns the bytes of frames up to the marker, which are no longer kept.
func (f *flow) acknowledged(marker Datamarker) int {
	upto := 0
	for i, frame := range f.waiting {
		if frame.marker.IsZero() {
			continue
		}
		if frame.marker.Order().Compare(marker.Order()) > 0 {
			break
		}
		upto = i + 1
		if frame.marker.Equal(marker) {
			break // later ones may have the same place, with more of a backfill
		}
	}
	freed := 0
	for _, frame := range f.waiting[:upto] {
		freed += frame.size
	}
	f.waiting = f.waiting[upto:]
	f.kept -= freed
	return freed
}

func (f *flow) close(phase phase) {
	f.phase = phase
	f.joining = nil
}
