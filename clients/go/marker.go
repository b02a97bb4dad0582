package wormhole

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const mostBackfill = 16 << 10

// Position is a place in one log: the next byte to read. Places of different logs cannot be compared.
type Position struct {
	Incarnation uint32 // counts the histories of the log
	File        uint64
	Offset      uint64
}

func positionOf(message *wirev1.Position) Position {
	return Position{message.GetIncarnation(), message.GetFile(), message.GetOffset()}
}

func (p Position) message() *wirev1.Position {
	return &wirev1.Position{Incarnation: p.Incarnation, File: p.File, Offset: p.Offset}
}

// Compare returns -1 if p is before q, +1 if it is after q, and 0 if they are the same place.
func (p Position) Compare(q Position) int {
	return cmp.Or(
		cmp.Compare(p.Incarnation, q.Incarnation), cmp.Compare(p.File, q.File), cmp.Compare(p.Offset, q.Offset),
	)
}

// String returns incarnation/file/offset.
func (p Position) String() string { return fmt.Sprintf("%d/%d/%d", p.Incarnation, p.File, p.Offset) }

// Datamarker is a place that may be stored: delivery can begin there. It is always at a transaction's end.
//
// An application that stores datamarkers with its own state stores the bytes of [Datamarker.MarshalBinary], whole.
type Datamarker struct {
	message *wirev1.Datamarker // never changed
}

func markerOf(message *wirev1.Datamarker) (Datamarker, error) {
	if message.GetOrder() == nil {
		return Datamarker{}, errors.New("order is missing")
	}
	if len(message.Backfill) > mostBackfill {
		return Datamarker{}, fmt.Errorf("backfill has %d bytes; at most %d are taken", len(message.Backfill), mostBackfill)
	}
	return Datamarker{message}, nil
}

// IsZero reports whether m is no datamarker.
func (m Datamarker) IsZero() bool { return m.message == nil }

// Order returns the place in the log.
func (m Datamarker) Order() Position { return positionOf(m.message.GetOrder()) }

// Delivered returns the place in the database's own terms, such as a set of transaction ids.
func (m Datamarker) Delivered() string { return m.message.GetDelivered() }

// CommittedAt returns when the last transaction before the place was committed; the zero time if that is unknown.
func (m Datamarker) CommittedAt() time.Time { return timeOf(m.message.GetCommittedAtUs()) }

// Equal reports whether both are the same datamarker.
func (m Datamarker) Equal(other Datamarker) bool { return proto.Equal(m.message, other.message) }

// String returns the place for people.
func (m Datamarker) String() string {
	switch {
	case m.IsZero():
		return "(none)"
	case m.Delivered() == "":
		return m.Order().String()
	default:
		return fmt.Sprintf("%s (%s)", m.Order(), m.Delivered())
	}
}

// MarshalBinary returns the stored form, with everything that the publisher needs to continue at the place.
func (m Datamarker) MarshalBinary() ([]byte, error) {
	if m.IsZero() {
		return nil, errors.New("wormhole: there is no datamarker to store")
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m.message)
}

// UnmarshalBinary reads the stored form.
func (m *Datamarker) UnmarshalBinary(data []byte) error {
	message := &wirev1.Datamarker{}
	if err := proto.Unmarshal(data, message); err != nil {
		return fmt.Errorf("wormhole: a stored datamarker: %w", err)
	}
	marker, err := markerOf(message)
	if err != nil {
		return fmt.Errorf("wormhole: a stored datamarker: %w", err)
	}
	*m = marker
	return nil
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
