package wormhole

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	mostUpdates     = 1 << 18 // and transactions, of one body
	longestSource   = 1000    // characters
	smallBody       = 2 << 20 // what such a body comes to is bounded by its size
	mostColumnBytes = 8 << 20 // of everything but the updates, in a larger one
)

// body is a batch body that was checked: every array has the length that the format requires. Rows stay serialized.
type body struct {
	updates [][]byte
	columns *wirev1.BatchBody // everything else
}

// parseBody checks and opens a body. The error names the field.
func parseBody(data []byte) (*body, error) {
	updates, rest, err := splitBody(data)
	if err != nil {
		return nil, err
	}
	b := &body{updates, &wirev1.BatchBody{}}
	if err := proto.Unmarshal(rest, b.columns); err != nil {
		return nil, fmt.Errorf("batch body is no valid message: %w", err)
	}
	if len(b.columns.TxNumber) > mostUpdates {
		return nil, fmt.Errorf("batch body: %d transactions; at most %d are taken", len(b.columns.TxNumber), mostUpdates)
	}
	for _, source := range b.columns.Sources {
		if utf8.RuneCountInString(source) > longestSource {
			return nil, fmt.Errorf("batch body: sources: one is longer than %d characters", longestSource)
		}
	}
	if err := b.checkLengths(); err != nil {
		return nil, err
	}
	return b, b.checkContents()
}

// splitBody separates the updates from the other fields, before anything is made of these.
func splitBody(data []byte) (updates [][]byte, rest []byte, err error) {
	for left := data; len(left) > 0; {
		number, kind, n := protowire.ConsumeTag(left)
		if n < 0 {
			return nil, nil, fmt.Errorf("batch body is no valid message: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, left[n:])
		if size < 0 {
			return nil, nil, fmt.Errorf("batch body is no valid message: %w", protowire.ParseError(size))
		}
		if number == 1 && kind == protowire.BytesType {
			if len(updates) == mostUpdates {
				return nil, nil, fmt.Errorf("batch body: more than %d updates", mostUpdates)
			}
			update, _ := protowire.ConsumeBytes(left[n:])
			updates = append(updates, update)
		} else {
			rest = append(rest, left[:n+size]...)
		}
		if len(data) > smallBody && len(rest) > mostColumnBytes {
			return nil, nil, fmt.Errorf("batch body: more than %d bytes beside its updates", mostColumnBytes)
		}
		left = left[n+size:]
	}
	return updates, rest, nil
}

func (b *body) checkLengths() error {
	c, count, transactions := b.columns, len(b.updates), len(b.columns.TxNumber)
	one := min(1, transactions)
	for _, array := range []struct {
		name    string
		length  int
		allowed [3]int
	}{
		{"schema_index", len(c.SchemaIndex), [3]int{0, 1, count}},
		{"update_index", len(c.UpdateIndex), [3]int{0, 0, count}},
		{"tx_source", len(c.TxSource), [3]int{0, 1, transactions}},
		{"tx_file", len(c.TxFile), [3]int{one, one, transactions}},
		{"tx_offset", len(c.TxOffset), [3]int{transactions, transactions, transactions}},
		{"tx_committed_at_us", len(c.TxCommittedAtUs), [3]int{one, one, transactions}},
		{"tx_end", len(c.TxEnd), [3]int{max(0, transactions-1), transactions, transactions}},
		{"marks", len(c.Marks), [3]int{0, 0, count}},
	} {
		if a := array.allowed; array.length != a[0] && array.length != a[1] && array.length != a[2] {
			return fmt.Errorf("batch body: %s has %d entries for %d updates in %d transactions",
				array.name, array.length, count, transactions)
		}
	}
	if count > 0 && transactions == 0 {
		return fmt.Errorf("batch body: %d updates in no transaction", count)
	}
	return nil
}

func (b *body) checkContents() error {
	c, count, transactions := b.columns, len(b.updates), len(b.columns.TxNumber)
	if c.Ended && len(c.TxEnd) != transactions-1 {
		return fmt.Errorf("batch body: ended, with %d entries of tx_end for %d transactions", len(c.TxEnd), transactions)
	}
	last := uint32(0)
	for _, end := range c.TxEnd {
		if end < last || int(end) > count {
			return fmt.Errorf("batch body: tx_end must ascend and not pass the number of updates")
		}
		last = end
	}
	if transactions > 0 && len(c.TxEnd) == transactions && int(last) != count {
		return fmt.Errorf("batch body: updates after the end of the last transaction")
	}
	if count > 0 && highest(c.SchemaIndex) >= len(c.SchemaIds) {
		return fmt.Errorf("batch body: schema_index points past its table of %d", len(c.SchemaIds))
	}
	if transactions > 0 && highest(c.TxSource) >= len(c.Sources) {
		return fmt.Errorf("batch body: tx_source points past its table of %d", len(c.Sources))
	}
	if c.Ended {
		c.TxEnd = append(c.TxEnd, uint32(count+1)) // the last transaction ended, with an update that is not here
	}
	return nil
}

func highest(indexes []uint32) int {
	highest := uint32(0)
	for _, index := range indexes {
		highest = max(highest, index)
	}
	return int(highest)
}

// at returns entry i of an array that may have one entry for all, or none.
func at[T any](values []T, i int) T {
	switch len(values) {
	case 0:
		var zero T
		return zero
	case 1:
		return values[0]
	default:
		return values[i]
	}
}

func (b *body) transaction(tx int) *Transaction {
	c := b.columns
	us := at(c.TxCommittedAtUs, tx)
	return &Transaction{
		Source:        c.Sources[at(c.TxSource, tx)],
		Number:        c.TxNumber[tx],
		Position:      Position{c.Incarnation, at(c.TxFile, tx), c.TxOffset[tx]},
		CommittedAt:   timeOf(us),
		committedAtUs: us,
	}
}

// endsFirst reports whether the first transaction ends in this body without an update of its own.
func (b *body) endsFirst() bool { return len(b.columns.TxEnd) > 0 && b.columns.TxEnd[0] == 0 }

// cursor walks over the updates of a body, in order.
type cursor struct {
	*body
	assigned *assignment
	schemas  []*Schema // by the body's schema_ids
	replayed bool

	i, tx       int
	transaction *Transaction // of tx, once one of its updates was seen
}

// next returns the next update, whose row is not decoded; nil at the end.
func (c *cursor) next() *Update {
	if c.i == len(c.updates) {
		return nil
	}
	columns, i := c.columns, c.i
	c.i++
	for c.tx < len(columns.TxEnd) && i >= int(columns.TxEnd[c.tx]) {
		c.tx++
		c.transaction = nil
	}
	if c.transaction == nil {
		c.transaction = c.body.transaction(c.tx)
	}
	ended := c.tx < len(columns.TxEnd)
	return &Update{
		Schema:          c.schemas[at(columns.SchemaIndex, i)],
		Mark:            markOf(columns.Marks, i),
		Transaction:     c.transaction,
		Index:           c.index(i),
		EndsTransaction: ended && i+1 == int(columns.TxEnd[c.tx]),
		Shard:           c.assigned.Shard,
		Epoch:           c.assigned.Epoch,
		Generation:      c.assigned.Generation,
		Replayed:        c.replayed,
		raw:             c.updates[i],
		inside:          !ended,
	}
}

func (c *cursor) index(i int) uint32 {
	columns := c.columns
	switch {
	case len(columns.UpdateIndex) > 0:
		return columns.UpdateIndex[i]
	case c.tx > 0:
		return uint32(i) - columns.TxEnd[c.tx-1]
	default:
		return uint32(i) + columns.FirstIndex
	}
}

// markOf returns the mark of an update. A number that this release does not know is no mark.
func markOf(marks []wirev1.Mark, i int) Mark {
	if len(marks) == 0 || marks[i] < 0 || marks[i] > wirev1.Mark(Left) {
		return NoMark
	}
	return Mark(marks[i])
}
