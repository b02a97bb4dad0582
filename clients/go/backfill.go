package wormhole

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

const (
	mostName       = 1024 // characters
	mostFrameBytes = 512 << 10
	mostKeys       = 4096
)

// KeyRange is a range of a table's keys. The shard has received every existing row with one of them: a row that the
// application holds in the range, and did not receive in this generation, does not exist any more. See
// [KeyRange.Contains].
type KeyRange struct {
	Schema     *Schema // the table and its key
	Shard      string
	Epoch      uint64
	Generation uint64
	After      []Value   // exclusive; nil: from the table's first key on
	Until      []Value   // inclusive; nil: to its last key
	Keys       [][]Value // if not empty, the range is these keys alone
	Except     [][]Value // keys that the range does not decide about
	Rows       uint64    // existing rows that were delivered for the range
}

// ScanEnd is the end of the existing rows of a table. What the application holds of the table in this shard, and did
// not receive in this generation or a later one, does not exist any more, but for the keys in Except.
type ScanEnd struct {
	Table      string
	Shard      string
	Epoch      uint64
	Generation uint64
	Except     [][]Value // keys whose updates are parked
	Rows       uint64
}

// Contains reports whether a row with this key exists only if it was received.
func (r *KeyRange) Contains(key []Value) bool {
	if containsKey(r.Except, key) {
		return false
	}
	if len(r.Keys) > 0 {
		return containsKey(r.Keys, key)
	}
	return (r.After == nil || compareKeys(key, r.After) > 0) && (r.Until == nil || compareKeys(key, r.Until) <= 0)
}

func containsKey(keys [][]Value, key []Value) bool {
	return slices.ContainsFunc(keys, func(one []Value) bool { return slices.EqualFunc(one, key, Value.Equal) })
}

// compareKeys orders keys of integers and bytes. It panics for others, of which no range has an end.
func compareKeys(a, b []Value) int {
	return slices.CompareFunc(a, b, func(v, w Value) int {
		order, ok := v.compare(w)
		if !ok {
			panic(fmt.Sprintf("wormhole: a %s is compared with a key of %s", v.kind, w.kind))
		}
		return order
	})
}

// keyKinds has the kinds of value that a key column of each type has. The order of portable ones is known.
var keyKinds = map[string]struct {
	kinds    []Kind
	portable bool
}{
	"bytes":   {[]Kind{KindBytes}, true},
	"text":    {[]Kind{KindText}, false},
	"int":     {[]Kind{KindInt, KindUint}, true},
	"uint":    {[]Kind{KindInt, KindUint}, true},
	"double":  {[]Kind{KindDouble}, false},
	"bool":    {[]Kind{KindBool}, false},
	"decimal": {[]Kind{KindDecimal, KindText}, false},
}

// checkChunkEnd returns an error, which names the field, for a frame that is not a range of the schema's table.
func checkChunkEnd(frame *wirev1.ChunkEnd, schema *Schema) error {
	if size := proto.Size(frame); size > mostFrameBytes {
		return fmt.Errorf("chunk_end: %d bytes; at most %d are taken", size, mostFrameBytes)
	}
	if len(schema.Key) == 0 {
		return fmt.Errorf("chunk_end.schema: %s has no key", schema.Table)
	}
	for _, column := range schema.Key {
		if frame.Portable && !keyKinds[column.Type].portable {
			return fmt.Errorf("chunk_end.portable: key column %s is %s, not int or bytes", column.Name, column.Type)
		}
	}
	if len(frame.Except) > mostKeys {
		return fmt.Errorf("chunk_end.except: more than %d keys", mostKeys)
	}
	if len(frame.Alone) > mostKeys {
		return fmt.Errorf("chunk_end.alone: more than %d keys", mostKeys)
	}
	if len(frame.Alone) > 0 && (frame.Portable || frame.After != nil || frame.Until != nil) {
		return fmt.Errorf("chunk_end.alone: single keys and a range in one frame")
	}
	keys, err := keysOf(frame, schema)
	if err != nil {
		return err
	}
	if frame.Portable && keys.After != nil && keys.Until != nil && compareKeys(keys.After, keys.Until) >= 0 {
		return fmt.Errorf("chunk_end.until: not above chunk_end.after")
	}
	return nil
}

func keysOf(frame *wirev1.ChunkEnd, schema *Schema) (keys KeyRange, err error) {
	var after, until, except, alone error
	keys = KeyRange{Schema: schema, Rows: frame.Rows}
	keys.After, after = endOf(frame.After, schema, "chunk_end.after")
	keys.Until, until = endOf(frame.Until, schema, "chunk_end.until")
	keys.Except, except = keyList(frame.Except, schema, "chunk_end.except")
	keys.Keys, alone = keyList(frame.Alone, schema, "chunk_end.alone")
	return keys, errors.Join(after, until, except, alone)
}

func endOf(message *wirev1.RowKey, schema *Schema, where string) ([]Value, error) {
	if message == nil {
		return nil, nil
	}
	return keyOf(message, schema, where)
}

func keyList(messages []*wirev1.RowKey, schema *Schema, where string) ([][]Value, error) {
	keys := make([][]Value, len(messages))
	for i, message := range messages {
		key, err := keyOf(message, schema, where)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

func keyOf(message *wirev1.RowKey, schema *Schema, where string) ([]Value, error) {
	if message.Whole || (message.Table != "" && message.Table != schema.Table) {
		return nil, fmt.Errorf("%s: no key of %s", where, schema.Table)
	}
	if len(message.Values) != len(schema.Key) {
		return nil, fmt.Errorf("%s: %d values for the %d columns of the key", where, len(message.Values), len(schema.Key))
	}
	key, err := valuesOf(message)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	for i, column := range schema.Key {
		if !slices.Contains(keyKinds[column.Type].kinds, key[i].kind) {
			return nil, fmt.Errorf("%s: %s for column %s, which is %s", where, key[i].kind, column.Name, column.Type)
		}
	}
	return key, nil
}

func valuesOf(key *wirev1.RowKey) ([]Value, error) {
	values := make([]Value, len(key.Values))
	for i, message := range key.Values {
		data, err := proto.Marshal(message)
		if err != nil {
			return nil, err
		}
		if values[i], err = decodeValue(data); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// keyFromRow returns the values and the table of a serialized RowKey.
func keyFromRow(row string) (key []Value, table string, err error) {
	message := &wirev1.RowKey{}
	if err := proto.Unmarshal([]byte(row), message); err != nil {
		return nil, "", err
	}
	key, err = valuesOf(message)
	return key, message.Table, err
}
