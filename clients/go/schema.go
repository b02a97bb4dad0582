package wormhole

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

// Column is one column of a table. Type is bytes, text, int, uint, double, bool, decimal, entries, or hash: text in
// place of a value that the application's mask hides.
type Column struct {
	Name string
	Type string
}

// Schema names the values of a table's updates. It does not change; a table that changes has another Schema.
type Schema struct {
	Table   string
	Key     []Column
	Columns []Column

	id        uint64
	canonical []byte
	index     map[string]int
}

// NewSchema returns the schema of a table, for tests of a handler.
func NewSchema(table string, key, columns []Column) *Schema {
	message := &wirev1.Schema{Table: table}
	for _, column := range key {
		message.Key = append(message.Key, &wirev1.Column{Name: column.Name, Type: column.Type})
	}
	for _, column := range columns {
		message.Columns = append(message.Columns, &wirev1.Column{Name: column.Name, Type: column.Type})
	}
	canonical, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("wormhole: schema of %q: %v", table, err)) // a name is not UTF-8
	}
	return schemaOf(message, canonical)
}

// ID returns the hash that identifies the schema. It is the same on every stream and in the archive.
func (s *Schema) ID() uint64 { return s.id }

func schemaOf(message *wirev1.Schema, canonical []byte) *Schema {
	hash := sha256.Sum256(canonical)
	schema := &Schema{
		Table:     message.Table,
		Key:       columnsOf(message.Key),
		Columns:   columnsOf(message.Columns),
		id:        binary.BigEndian.Uint64(hash[:8]),
		canonical: canonical,
		index:     make(map[string]int, len(message.Columns)),
	}
	for i, column := range schema.Columns {
		schema.index[column.Name] = i
	}
	return schema
}

func columnsOf(messages []*wirev1.Column) []Column {
	columns := make([]Column, len(messages))
	for i, message := range messages {
		columns[i] = Column{Name: message.Name, Type: message.Type}
	}
	return columns
}

// parseSchema reads the canonical bytes of a schema, and checks that they are the canonical ones.
func parseSchema(canonical []byte) (*Schema, error) {
	message := &wirev1.Schema{}
	if err := proto.Unmarshal(canonical, message); err != nil {
		return nil, err
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	if len(message.ProtoReflect().GetUnknown()) > 0 || !bytes.Equal(again, canonical) {
		return nil, errors.New("the bytes are not canonical")
	}
	return schemaOf(message, canonical), nil
}

// Row is the values of a row, in the order of its schema's columns. The zero Row is absent.
type Row struct {
	schema *Schema
	values []Value
}

// NewRow returns a row, for tests of a handler. It panics if the number of values is not that of the columns.
func NewRow(schema *Schema, values ...Value) Row {
	if len(values) != len(schema.Columns) {
		panic(fmt.Sprintf("wormhole: %d values for the %d columns of %q", len(values), len(schema.Columns), schema.Table))
	}
	return Row{schema, values}
}

// Exists reports whether there are values at all. For example, an insert has no row before it.
func (r Row) Exists() bool { return len(r.values) > 0 }

// Get returns the value of a column. It is unavailable if the row has no such column.
func (r Row) Get(column string) Value {
	value, _ := r.Lookup(column)
	return value
}

// Lookup returns the value of a column, and whether the row has that column.
func (r Row) Lookup(column string) (Value, bool) {
	if !r.Exists() {
		return Value{}, false
	}
	i, ok := r.schema.index[column]
	if !ok {
		return Value{}, false
	}
	return r.values[i], true
}

// Values returns the values in the order of [Schema.Columns]; nil for an absent row.
func (r Row) Values() []Value { return r.values }

// All iterates over the columns' names and values.
func (r Row) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, value := range r.values {
			if !yield(r.schema.Columns[i].Name, value) {
				return
			}
		}
	}
}
