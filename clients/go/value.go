package wormhole

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is what a [Value] holds.
type Kind uint8

// The kinds of values.
const (
	KindUnavailable Kind = iota // not in the log, which is not the same as NULL
	KindNull
	KindBytes
	KindText
	KindInt
	KindUint
	KindDouble
	KindBool
	KindDecimal
	KindEntries // wide columns of RocksDB
)

var kindNames = [...]string{
	"unavailable", "null", "bytes", "text", "int", "uint", "double", "bool", "decimal", "entries",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Value is one value of a row, exactly as it was sent. The zero Value is unavailable.
//
// A Value that came with an update shares the bytes of the update's batch; see [Update].
type Value struct {
	kind Kind
	num  uint64 // int, uint, double, bool
	data []byte // bytes, text, decimal, entries: a serialized Entries
}

// Null returns the NULL of SQL.
func Null() Value { return Value{kind: KindNull} }

// BytesValue returns a value of bytes, which it does not copy.
func BytesValue(b []byte) Value { return Value{kind: KindBytes, data: b} }

// TextValue returns a text.
func TextValue(s string) Value { return Value{kind: KindText, data: []byte(s)} }

// IntValue returns a signed integer.
func IntValue(i int64) Value { return Value{kind: KindInt, num: uint64(i)} }

// UintValue returns an unsigned integer.
func UintValue(u uint64) Value { return Value{kind: KindUint, num: u} }

// DoubleValue returns a floating-point number.
func DoubleValue(f float64) Value { return Value{kind: KindDouble, num: math.Float64bits(f)} }

// BoolValue returns true or false.
func BoolValue(b bool) Value {
	if b {
		return Value{kind: KindBool, num: 1}
	}
	return Value{kind: KindBool}
}

// DecimalValue returns an exact decimal number.
func DecimalValue(d Decimal) Value { return Value{kind: KindDecimal, data: []byte(d)} }

// Kind returns what the value holds.
func (v Value) Kind() Kind { return v.kind }

// IsNull reports whether the value is the NULL of SQL.
func (v Value) IsNull() bool { return v.kind == KindNull }

// IsAvailable reports whether the log has the value. NULL is available.
func (v Value) IsAvailable() bool { return v.kind != KindUnavailable }

func (v Value) must(kind Kind) {
	if v.kind != kind {
		panic(fmt.Sprintf("wormhole: a value of kind %s was read as %s", v.kind, kind))
	}
}

// Bytes returns the bytes of a value of kind [KindBytes]. It panics if v is of another kind, as do the other methods
// that return a content.
func (v Value) Bytes() []byte { v.must(KindBytes); return v.data }

// Text returns the text.
func (v Value) Text() string { v.must(KindText); return string(v.data) }

// Int returns the signed integer.
func (v Value) Int() int64 { v.must(KindInt); return int64(v.num) }

// Uint returns the unsigned integer.
func (v Value) Uint() uint64 { v.must(KindUint); return v.num }

// Double returns the floating-point number.
func (v Value) Double() float64 { v.must(KindDouble); return math.Float64frombits(v.num) }

// Bool returns the truth value.
func (v Value) Bool() bool { v.must(KindBool); return v.num != 0 }

// Decimal returns the exact decimal number.
func (v Value) Decimal() Decimal { v.must(KindDecimal); return Decimal(v.data) }

// Entries returns the wide columns. Where a name occurs twice, the last one counts.
func (v Value) Entries() map[string][]byte {
	v.must(KindEntries)
	var parts [2][][]byte
	_ = eachEntry(v.data, func(part int, field []byte) { parts[part] = append(parts[part], field) }) // it was checked
	names, contents := parts[0], parts[1]
	entries := make(map[string][]byte, len(names))
	for i, name := range names {
		entries[string(name)] = contents[i]
	}
	return entries
}

// Any returns the content as nil (for NULL), []byte, string, int64, uint64, float64, bool, [Decimal] or
// map[string][]byte. An unavailable value is returned as itself.
func (v Value) Any() any {
	switch v.kind {
	case KindNull:
		return nil
	case KindBytes:
		return v.Bytes()
	case KindText:
		return v.Text()
	case KindInt:
		return v.Int()
	case KindUint:
		return v.Uint()
	case KindDouble:
		return v.Double()
	case KindBool:
		return v.Bool()
	case KindDecimal:
		return v.Decimal()
	case KindEntries:
		return v.Entries()
	default:
		return v
	}
}

// String returns the value for people: bytes are hexadecimal, NULL is null.
func (v Value) String() string {
	switch v.kind {
	case KindBytes:
		return "0x" + hex.EncodeToString(v.data)
	case KindText, KindDecimal:
		return string(v.data)
	case KindInt:
		return strconv.FormatInt(v.Int(), 10)
	case KindUint:
		return strconv.FormatUint(v.num, 10)
	case KindDouble:
		return strconv.FormatFloat(v.Double(), 'g', -1, 64)
	case KindBool:
		return strconv.FormatBool(v.num != 0)
	case KindEntries:
		return fmt.Sprintf("%q", v.Entries())
	default:
		return v.kind.String()
	}
}

// Equal reports whether both values have the same content. Integers are equal whether they are signed or not, and NaN
// is equal to itself. Decimals are equal if they are the same number.
func (v Value) Equal(w Value) bool {
	if v.kind == KindDecimal && w.kind == KindDecimal {
		a, okA := v.Decimal().Rat()
		b, okB := w.Decimal().Rat()
		if okA && okB {
			return a.Cmp(b) == 0
		}
	}
	if v.kind == KindDouble && w.kind == KindDouble {
		a, b := v.Double(), w.Double()
		return a == b || (a != a && b != b)
	}
	if order, ok := v.compare(w); ok {
		return order == 0
	}
	return v.kind == w.kind && v.num == w.num && bytes.Equal(v.data, w.data)
}

// compare orders integers and bytes, whose order Go and the database agree about.
func (v Value) compare(w Value) (order int, ok bool) {
	isInt := func(v Value) bool { return v.kind == KindInt || v.kind == KindUint }
	switch {
	case v.kind == KindBytes && w.kind == KindBytes:
		return bytes.Compare(v.data, w.data), true
	case isInt(v) && isInt(w):
		return v.bigInt().Cmp(w.bigInt()), true
	default:
		return 0, false
	}
}

func (v Value) bigInt() *big.Int {
	if v.kind == KindInt {
		return big.NewInt(int64(v.num))
	}
	return new(big.Int).SetUint64(v.num)
}

func (v Value) clone() Value {
	v.data = bytes.Clone(v.data)
	return v
}

// Decimal is a decimal number as text, with every digit that the database holds. It may be NaN or an infinity.
type Decimal string

// Rat returns the exact number, and false for NaN and infinities.
func (d Decimal) Rat() (*big.Rat, bool) {
	if !d.isFinite() {
		return nil, false
	}
	return new(big.Rat).SetString(string(d))
}

// isFinite reports whether the text is a number with at most a sign, a point and an exponent of five digits. big.Rat
// accepts more, and would need memory as large as the exponent.
func (d Decimal) isFinite() bool {
	digits, i := 0, 0
	if i < len(d) && (d[i] == '-' || d[i] == '+') {
		i++
	}
	for point := false; i < len(d) && (isDigit(d[i]) || (d[i] == '.' && !point)); i++ {
		if d[i] == '.' {
			point = true
		} else {
			digits++
		}
	}
	if digits == 0 || i == len(d) {
		return digits > 0
	}
	exponent, err := strconv.Atoi(string(d[i+1:]))
	return (d[i] == 'e' || d[i] == 'E') && err == nil && -99_999 <= exponent && exponent <= 99_999
}

func (d Decimal) isValid() bool {
	if d.isFinite() {
		return true
	}
	number := d
	if number != "" && (number[0] == '-' || number[0] == '+') {
		number = number[1:]
	}
	switch number {
	case "NaN", "Infinity", "Inf", "sNaN":
		return true
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// decodeValue reads a serialized Value.
func decodeValue(data []byte) (Value, error) {
	value, ok := decodeSingle(data)
	if !ok {
		var err error
		if value, err = decodeFields(data); err != nil {
			return Value{}, err
		}
	}
	switch {
	case (value.kind == KindText || value.kind == KindDecimal) && !utf8.Valid(value.data):
		return Value{}, fmt.Errorf("a %s is not UTF-8", value.kind)
	case value.kind == KindDecimal && !Decimal(value.data).isValid():
		return Value{}, fmt.Errorf("%.60q is no decimal number", value.data)
	case value.kind == KindEntries:
		return value, checkEntries(value.data)
	}
	return value, nil
}

// decodeSingle reads a Value with one field of the kinds that nearly all have, without a detour.
func decodeSingle(data []byte) (Value, bool) {
	if len(data) == 0 {
		return Value{}, true
	}
	content := data[1:]
	switch tag := data[0]; tag {
	case 1<<3 | 2, 2<<3 | 2, 7<<3 | 2:
		length, n := protowire.ConsumeVarint(content)
		if n < 0 || uint64(len(content)-n) != length {
			return Value{}, false
		}
		return Value{kind: textKinds[tag>>3], data: content[n:]}, true
	case 3 << 3, 4 << 3, 6 << 3, 8 << 3, 9 << 3:
		number, n := protowire.ConsumeVarint(content)
		if n != len(content) {
			return Value{}, false
		}
		return numberValue(protowire.Number(tag>>3), number)
	case 5<<3 | 1:
		bits, n := protowire.ConsumeFixed64(content)
		return Value{kind: KindDouble, num: bits}, n == len(content)
	default:
		return Value{}, false
	}
}

// textKinds has the kind of each field of Value that is bytes.
var textKinds = [...]Kind{1: KindBytes, 2: KindText, 7: KindDecimal, 10: KindEntries}

// decodeFields reads a Value with any fields. As in every protobuf message the last one counts.
func decodeFields(data []byte) (Value, error) {
	var value Value
	err := eachField(data, func(number protowire.Number, kind protowire.Type, field []byte) error {
		switch {
		case kind == protowire.BytesType && int(number) < len(textKinds) && textKinds[number] != 0:
			next := Value{kind: textKinds[number], data: field}
			if next.kind == KindEntries && value.kind == KindEntries {
				next.data = bytes.Join([][]byte{value.data, field}, nil) // a message that comes twice is joined
			}
			value = next
		case kind == protowire.Fixed64Type && number == 5:
			bits, _ := protowire.ConsumeFixed64(field)
			value = Value{kind: KindDouble, num: bits}
		case kind == protowire.VarintType:
			content, _ := protowire.ConsumeVarint(field)
			if next, ok := numberValue(number, content); ok {
				value = next
			}
		}
		return nil
	})
	return value, err
}

// numberValue returns the value of a field of Value that is a varint, and false if there is none of this number.
func numberValue(field protowire.Number, number uint64) (Value, bool) {
	switch field {
	case 3:
		return IntValue(protowire.DecodeZigZag(number)), true
	case 4:
		return UintValue(number), true
	case 6:
		return BoolValue(number != 0), true
	case 8:
		return Null(), true
	case 9:
		return Value{}, true
	default:
		return Value{}, false
	}
}

// checkEntries counts, because a list of short entries takes many times their bytes.
func checkEntries(data []byte) error {
	var counts [2]int
	err := eachEntry(data, func(part int, _ []byte) { counts[part]++ })
	if err == nil && counts[0] != counts[1] {
		err = fmt.Errorf("entries has %d names for %d values", counts[0], counts[1])
	}
	return err
}

// eachEntry calls visit with the names (part 0) and the contents (part 1) of a serialized Entries.
func eachEntry(data []byte, visit func(part int, field []byte)) error {
	return eachField(data, func(number protowire.Number, kind protowire.Type, field []byte) error {
		if kind == protowire.BytesType && (number == 1 || number == 2) {
			visit(int(number)-1, field)
		}
		return nil
	})
}

// eachField calls visit with the fields of a serialized message, in order. field is the content of a field that has a
// length, otherwise the bytes of the number.
func eachField(data []byte, visit func(number protowire.Number, kind protowire.Type, field []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return protowire.ParseError(n)
		}
		field := data[:n]
		if kind == protowire.BytesType {
			field, _ = protowire.ConsumeBytes(data)
		}
		data = data[n:]
		if err := visit(number, kind, field); err != nil {
			return err
		}
	}
	return nil
}
