package wormhole

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

// Op is what an update did.
type Op uint8

// The operations. Their numbers are those of the protocol.
const (
	Insert      Op = 1
	Change      Op = 2 // UPDATE of SQL
	Delete      Op = 3
	Truncate    Op = 4
	Upsert      Op = 5 // the log cannot tell an insert from a change (Put of RocksDB)
	Merge       Op = 6 // of RocksDB: After holds the operand
	DeleteRange Op = 7 // from Key (inclusive) to KeyEnd (exclusive)
	Read        Op = 8 // an existing row, read from its table
)

var opNames = [...]string{
	"", "insert", "update", "delete", "truncate", "upsert", "merge", "delete_range", "read",
}

// String returns the operation's name, which is the same in every client.
func (op Op) String() string {
	if op == 0 || int(op) >= len(opNames) {
		return fmt.Sprintf("Op(%d)", uint8(op))
	}
	return opNames[op]
}

// Mark is what an update means to the filter of the application.
type Mark uint8

// The marks. An insert and a delete have none, because they say it themselves.
const (
	NoMark  Mark = 0
	Entered Mark = 1 // the change brought the row into what the filter selects
	Left    Mark = 2 // the row is out of what the filter selects: drop it like a deleted one
)

// Transaction is the commit that an update belongs to. The Read updates of one chunk of existing rows are a
// transaction, too, without a commit time.
type Transaction struct {
	Source      string
	Number      uint64
	Position    Position  // after the transaction; in the middle of a large one: where it begins
	CommittedAt time.Time // in microseconds; the zero time if it is unknown

	committedAtUs int64
}

// ID returns the transaction's id.
func (t *Transaction) ID() string { return t.Source + ":" + strconv.FormatUint(t.Number, 10) }

// Update is one change of one row or key. A handler must not change it.
//
// An Update shares the bytes of its whole batch. Use [Update.Clone] to keep one beyond the callback.
type Update struct {
	Op     Op
	Schema *Schema
	Key    []Value // after the change; empty for an operation on a whole table
	OldKey []Value // before the change, if the change altered the key
	KeyEnd []Value // of DeleteRange
	Before Row     // absent where the log has none
	After  Row
	// TooLarge reports that the values were left out because of the publisher's max_update_bytes.
	TooLarge bool
	Mark     Mark

	Transaction *Transaction
	Index       uint32 // in its transaction in the log
	// EndsTransaction reports that this is the last update of its transaction that the shard receives.
	EndsTransaction bool

	Shard string
	// Epoch is a fencing token for writes that the update causes: it rises whenever the shard changes its owner.
	Epoch uint64
	// Generation is the number of the shard's last backfill. Rows of an older one do not exist any more at its end.
	Generation uint64
	// Replayed reports that the shard may have received the update before.
	Replayed bool

	raw    []byte // serialized
	inside bool   // its transaction was not finished in its batch
}

// ID returns <transaction id>:<index>. It is the same on every path, so that a repeated update can be recognised.
func (u *Update) ID() string {
	return u.Transaction.ID() + ":" + strconv.FormatUint(uint64(u.Index), 10)
}

// Table returns the name of the table.
func (u *Update) Table() string { return u.Schema.Table }

// String returns the update for people.
func (u *Update) String() string {
	return fmt.Sprintf("%s %s %s %v", u.ID(), u.Op, u.Table(), u.Key)
}

// Clone returns a copy that holds its own bytes only.
func (u *Update) Clone() *Update {
	c := *u
	c.raw = nil
	c.Key, c.OldKey, c.KeyEnd = cloneValues(u.Key), cloneValues(u.OldKey), cloneValues(u.KeyEnd)
	c.Before.values, c.After.values = cloneValues(u.Before.values), cloneValues(u.After.values)
	return &c
}

func cloneValues(values []Value) []Value {
	if values == nil {
		return nil
	}
	clones := make([]Value, len(values))
	for i, value := range values {
		clones[i] = value.clone()
	}
	return clones
}

// The fields of a serialized Update.
const (
	fieldOp       = 1
	fieldKey      = 2
	fieldAfter    = 3
	fieldBefore   = 4
	fieldOldKey   = 5
	fieldKeyEnd   = 6
	fieldTooLarge = 7
)

// decode reads the row. The schema bounds how many values are allocated, whatever the bytes claim.
func (u *Update) decode() error {
	counts, err := u.decodeHead()
	if err != nil {
		return err
	}
	total := 0
	for field, count := range counts {
		columns := len(u.Schema.Columns)
		if field != fieldAfter && field != fieldBefore {
			columns = len(u.Schema.Key)
		}
		if count != 0 && count != columns {
			return fmt.Errorf("%d values for the %d columns of its schema", count, columns)
		}
		total += count
	}
	values := make([]Value, total)
	var parts [fieldTooLarge][]Value // by field
	for field, count := range counts {
		parts[field], values = values[:0:count], values[count:]
	}
	for data := u.raw; len(data) > 0; {
		number, kind, n := protowire.ConsumeTag(data)
		data = data[n:]
		if kind != protowire.BytesType || number < fieldKey || number > fieldKeyEnd {
			data = data[protowire.ConsumeFieldValue(number, kind, data):]
			continue
		}
		content, n := protowire.ConsumeBytes(data)
		data = data[n:]
		value, err := decodeValue(content)
		if err != nil {
			return err
		}
		parts[number] = append(parts[number], value)
	}
	u.Key, u.OldKey, u.KeyEnd = parts[fieldKey], parts[fieldOldKey], parts[fieldKeyEnd]
	u.After, u.Before = Row{u.Schema, parts[fieldAfter]}, Row{u.Schema, parts[fieldBefore]}
	return nil
}

// decodeHead checks the form of the row, reads what is not a value, and returns the number of values of each field.
func (u *Update) decodeHead() (counts [fieldTooLarge]int, err error) {
	var op uint64
	for data := u.raw; len(data) > 0; {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return counts, protowire.ParseError(n)
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return counts, protowire.ParseError(n)
		}
		switch {
		case kind == protowire.BytesType && fieldKey <= number && number <= fieldKeyEnd:
			counts[number]++
		case kind == protowire.VarintType && number == fieldOp:
			op, _ = protowire.ConsumeVarint(data)
		case kind == protowire.VarintType && number == fieldTooLarge:
			large, _ := protowire.ConsumeVarint(data)
			u.TooLarge = large != 0
		}
		data = data[n:]
	}
	if op = uint64(uint32(op)); op == 0 || op >= uint64(len(opNames)) {
		return counts, fmt.Errorf("operation %d is not known to this release", int32(op))
	}
	u.Op = Op(op)
	return counts, nil
}

// rows returns the serialized RowKey of each row that the update touches. u was decoded.
func (u *Update) rows() ([]string, error) {
	if u.Op == Truncate || u.Op == DeleteRange || len(u.Key) == 0 {
		return []string{wholeTable(u.Table())}, nil
	}
	message := &wirev1.Update{}
	if err := proto.Unmarshal(u.raw, message); err != nil {
		return nil, err
	}
	rows := []string{rowKey(&wirev1.RowKey{Table: u.Table(), Values: message.Key})}
	if len(message.OldKey) > 0 {
		if old := rowKey(&wirev1.RowKey{Table: u.Table(), Values: message.OldKey}); old != rows[0] {
			rows = append(rows, old)
		}
	}
	return rows, nil
}

func wholeTable(table string) string {
	return rowKey(&wirev1.RowKey{Table: table, Whole: true})
}

// rowKey returns the bytes of a key: equal keys have equal bytes.
func rowKey(key *wirev1.RowKey) string {
	dropUnknown(key)
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(key)
	if err != nil {
		panic(fmt.Sprintf("wormhole: a key cannot be serialized: %v", err)) // it was parsed, so its texts are UTF-8
	}
	return string(data)
}

func dropUnknown(key *wirev1.RowKey) {
	key.ProtoReflect().SetUnknown(nil)
	for _, value := range key.Values {
		value.ProtoReflect().SetUnknown(nil)
		if entries := value.GetEntries(); entries != nil {
			entries.ProtoReflect().SetUnknown(nil)
		}
	}
}

// alone returns a serialized BatchBody with this update only, from which it can be delivered again.
func (u *Update) alone() ([]byte, error) {
	t := u.Transaction
	body := &wirev1.BatchBody{
		Updates:         [][]byte{u.raw},
		SchemaIds:       []uint64{u.Schema.id},
		UpdateIndex:     []uint32{u.Index},
		Sources:         []string{t.Source},
		TxNumber:        []uint64{t.Number},
		Incarnation:     t.Position.Incarnation,
		TxFile:          []uint64{t.Position.File},
		TxOffset:        []uint64{t.Position.Offset},
		TxCommittedAtUs: []int64{t.committedAtUs},
	}
	if u.Mark != NoMark {
		body.Marks = []wirev1.Mark{wirev1.Mark(u.Mark)}
	}
	if u.EndsTransaction {
		body.TxEnd = []uint32{1}
	} else {
		body.Ended = !u.inside
	}
	return proto.Marshal(body)
}

func (u *Update) place() place {
	return place{u.Transaction.Position, u.inside, u.Transaction.Source, u.Transaction.Number, u.Index}
}

// place is where an update stands among the updates of its flow, however they were cut into batches.
type place struct {
	position Position
	inside   bool // position is where the transaction begins, because it was not finished in its batch
	source   string
	number   uint64
	index    uint32
}

func placeOf(message *wirev1.UpdatePlace) (place, error) {
	id := message.GetTransaction()
	colon := strings.LastIndexByte(id, ':')
	if colon < 0 {
		return place{}, errors.New("a transaction's id has no colon")
	}
	number, err := strconv.ParseUint(id[colon+1:], 10, 64)
	return place{positionOf(message.GetPosition()), message.GetInside(), id[:colon], number, message.GetIndex()}, err
}

func (p place) message() *wirev1.UpdatePlace {
	return &wirev1.UpdatePlace{
		Position:    p.position.message(),
		Inside:      p.inside,
		Transaction: p.source + ":" + strconv.FormatUint(p.number, 10),
		Index:       p.index,
	}
}

func (p place) before(q place) bool {
	if p.source == q.source && p.number == q.number {
		return p.index < q.index
	}
	if order := p.position.Compare(q.position); order != 0 {
		return order < 0
	}
	if p.inside != q.inside {
		return !p.inside
	}
	pScan, qScan := scanOf(p.source), scanOf(q.source)
	if pScan != qScan {
		return pScan < qScan
	}
	return pScan > 0 && p.number < q.number
}

// scanOf returns the number of a scan whose source this is; 0 for the source of a log, which comes before every scan.
func scanOf(source string) uint64 {
	number, ok := strings.CutPrefix(source, "read:")
	scan, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return scan
}
