package wormhole

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

func TestTheWorkedExampleOfThePage(t *testing.T) {
	if users.ID() != 0x8936d676025edc4b {
		t.Errorf("the schema's id is %#x", users.ID())
	}
	u := &Update{Schema: users, raw: []byte("\x08\x02\x12\x02\x18\x0e\x1a\x05\x12\x03Ada\x22\x05\x12\x03ada")}
	if err := u.decode(); err != nil {
		t.Fatal(err)
	}
	if u.Op != Change || u.Key[0].Int() != 7 || u.After.Get("name").Text() != "Ada" || u.Before.Get("name").Text() != "ada" {
		t.Errorf("got %+v", u)
	}
}

func TestEveryKindOfValueIsExact(t *testing.T) {
	entries := &wirev1.Entries{Names: [][]byte{[]byte("a"), {0xff}}, Values: [][]byte{[]byte("1"), {}}}
	for name, test := range map[string]struct {
		message *wirev1.Value
		want    Value
	}{
		"bytes":        {&wirev1.Value{Kind: &wirev1.Value_Bytes{Bytes: []byte{0, 255}}}, BytesValue([]byte{0, 255})},
		"text":         {&wirev1.Value{Kind: &wirev1.Value_Text{Text: "Zoë\x00"}}, TextValue("Zoë\x00")},
		"least int":    {&wirev1.Value{Kind: &wirev1.Value_Int{Int: math.MinInt64}}, IntValue(math.MinInt64)},
		"largest int":  {&wirev1.Value{Kind: &wirev1.Value_Int{Int: math.MaxInt64}}, IntValue(math.MaxInt64)},
		"largest uint": {&wirev1.Value{Kind: &wirev1.Value_Uint{Uint: math.MaxUint64}}, UintValue(math.MaxUint64)},
		"zero int":     {&wirev1.Value{Kind: &wirev1.Value_Int{}}, IntValue(0)},
		"double":       {&wirev1.Value{Kind: &wirev1.Value_Double{Double: 0.1}}, DoubleValue(0.1)},
		"nan":          {&wirev1.Value{Kind: &wirev1.Value_Double{Double: math.NaN()}}, DoubleValue(math.NaN())},
		"infinity":     {&wirev1.Value{Kind: &wirev1.Value_Double{Double: math.Inf(-1)}}, DoubleValue(math.Inf(-1))},
		"true":         {&wirev1.Value{Kind: &wirev1.Value_Bool{Bool: true}}, BoolValue(true)},
		"false":        {&wirev1.Value{Kind: &wirev1.Value_Bool{}}, BoolValue(false)},
		"decimal":      {&wirev1.Value{Kind: &wirev1.Value_Decimal{Decimal: "-1.50"}}, DecimalValue("-1.50")},
		"no number":    {&wirev1.Value{Kind: &wirev1.Value_Decimal{Decimal: "NaN"}}, DecimalValue("NaN")},
		"null":         {&wirev1.Value{Kind: &wirev1.Value_Null{Null: true}}, Null()},
		"unavailable":  {&wirev1.Value{Kind: &wirev1.Value_Unavailable{Unavailable: true}}, Value{}},
		"no kind":      {&wirev1.Value{}, Value{}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := proto.Marshal(test.message)
			if err != nil {
				t.Fatal(err)
			}
			// A field that is not known before and after it changes nothing.
			unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
			for _, data := range [][]byte{data, append(bytes.Clone(unknown), data...), append(bytes.Clone(data), unknown...)} {
				got, err := decodeValue(data)
				if err != nil || got.Kind() != test.want.Kind() || !got.Equal(test.want) || got.String() != test.want.String() {
					t.Errorf("%x: got %v (%v), want %v", data, got, err, test.want)
				}
			}
		})
	}
	data, err := proto.Marshal(&wirev1.Value{Kind: &wirev1.Value_Entries{Entries: entries}})
	if err != nil {
		t.Fatal(err)
	}
	value, err := decodeValue(data)
	if got := value.Entries(); err != nil || len(got) != 2 || string(got["a"]) != "1" || len(got["\xff"]) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestValuesThatAreNoneAreRefused(t *testing.T) {
	for name, data := range map[string][]byte{
		"text":    {0x12, 0x01, 0xff},
		"decimal": {0x3a, 0x03, 'o', 'n', 'e'},
		"entries": {0x52, 0x02, 0x0a, 0x00},
		"cut off": {0x12, 0x05, 'a'},
		"number":  {0x18, 0x80},
	} {
		if value, err := decodeValue(data); err == nil {
			t.Errorf("%s: got %v", name, value)
		}
	}
}

func TestDecimalsAreExactNumbers(t *testing.T) {
	for text, want := range map[Decimal]string{
		"1.50": "3/2", "-0.1": "-1/10", "12345678901234567890.123": "12345678901234567890123/1000", "1e3": "1000/1",
	} {
		if number, ok := text.Rat(); !ok || number.String() != want {
			t.Errorf("%s: got %v", text, number)
		}
	}
	for _, text := range []Decimal{"NaN", "Infinity", "-Infinity", "", "1e999999999", "1/3", "0x10", "1_0"} {
		if number, ok := text.Rat(); ok {
			t.Errorf("%s: got %v", text, number)
		}
	}
	if !DecimalValue("1.50").Equal(DecimalValue("1.5")) || DecimalValue("1.50").Equal(TextValue("1.50")) {
		t.Error("decimals are compared as numbers, and with decimals only")
	}
}

func TestValuesOfAnotherKindPanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a text is read as an integer")
		}
	}()
	TextValue("7").Int()
}

func TestARowWithOtherValuesThanColumnsIsRefused(t *testing.T) {
	value := &wirev1.Value{Kind: &wirev1.Value_Null{Null: true}}
	for name, row := range map[string]*wirev1.Update{
		"after":     {Op: wirev1.Op_INSERT, After: []*wirev1.Value{value, value}},
		"key":       {Op: wirev1.Op_INSERT, Key: []*wirev1.Value{value, value}},
		"operation": {Op: 77},
	} {
		raw, err := proto.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Update{Schema: users, raw: raw}).decode(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestDamagedBodiesAreRefused(t *testing.T) {
	for name, change := range map[string]func(*wirev1.BatchBody){
		"schema_index past the table": func(b *wirev1.BatchBody) { b.SchemaIndex = []uint32{1} },
		"schema_index of a length":    func(b *wirev1.BatchBody) { b.SchemaIndex = []uint32{0, 0, 0} },
		"update_index of a length":    func(b *wirev1.BatchBody) { b.UpdateIndex = []uint32{0} },
		"tx_source past the table":    func(b *wirev1.BatchBody) { b.TxSource = []uint32{9} },
		"no tx_file":                  func(b *wirev1.BatchBody) { b.TxFile = nil },
		"tx_offset of a length":       func(b *wirev1.BatchBody) { b.TxOffset = []uint64{1} },
		"tx_end that falls":           func(b *wirev1.BatchBody) { b.TxEnd = []uint32{2, 1} },
		"tx_end past the updates":     func(b *wirev1.BatchBody) { b.TxEnd = []uint32{1, 3} },
		"updates after the end":       func(b *wirev1.BatchBody) { b.TxEnd = []uint32{0, 1} },
		"ended, and tx_end":           func(b *wirev1.BatchBody) { b.Ended = true },
		"marks of a length":           func(b *wirev1.BatchBody) { b.Marks = []wirev1.Mark{1} },
		"a long source":               func(b *wirev1.BatchBody) { b.Sources = []string{strings.Repeat("x", 1001)} },
		"no transactions": func(b *wirev1.BatchBody) {
			b.TxNumber, b.TxOffset, b.TxFile, b.TxEnd, b.TxCommittedAtUs = nil, nil, nil, nil, nil
		},
	} {
		body := bodyOf(1, insertOf(1, "a"), insertOf(2, "b"))
		if _, err := parseBody(bytesOf(body)); err != nil {
			t.Fatal(err)
		}
		change(body)
		if _, err := parseBody(bytesOf(body)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestAnUpdateAloneSaysWhetherItsTransactionEnded(t *testing.T) {
	for name, test := range map[string]struct{ ends, inside bool }{
		"with it": {true, false}, "with another update": {false, false}, "not yet": {false, true},
	} {
		u := &Update{
			Schema: users, Transaction: &Transaction{Source: "db1", Number: 1}, raw: insertOf(1, "a"),
			EndsTransaction: test.ends, inside: test.inside,
		}
		data, err := u.alone()
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseBody(data)
		if err != nil {
			t.Fatal(err)
		}
		c := &cursor{body: b, assigned: &assignment{Assign: &wirev1.Assign{}}, schemas: []*Schema{users}}
		if again := c.next(); again.EndsTransaction != test.ends || again.inside != test.inside || again.ID() != u.ID() {
			t.Errorf("%s: got %+v", name, again)
		}
	}
}

func TestBodiesThatBecomeLargeAreRefused(t *testing.T) {
	updates := bytes.Repeat([]byte{0x0a, 0x00}, mostUpdates+1)
	columns := bytes.Repeat([]byte{0x32, 0x00}, mostColumnBytes/2+1)
	for name, data := range map[string][]byte{"updates": updates, "columns": columns} {
		if _, err := parseBody(data); err == nil {
			t.Errorf("%s are accepted", name)
		}
	}
}

func TestPlacesAreInTheOrderOfTheLog(t *testing.T) {
	at := func(offset uint64, inside bool, source string, number uint64, index uint32) place {
		return place{Position{1, 1, offset}, inside, source, number, index}
	}
	ordered := []place{
		at(1, false, "db1", 1, 0), at(1, false, "db1", 1, 3), at(1, false, "read:1", 1, 0), at(1, false, "read:1", 2, 0),
		at(1, false, "read:2", 1, 0), at(1, true, "db1", 2, 0), at(2, false, "db1", 3, 0),
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if a.before(b) != (i < j) {
				t.Errorf("%v before %v: %t", a, b, a.before(b))
			}
		}
	}
}

func TestADatamarkerIsStoredWhole(t *testing.T) {
	m := Datamarker{&wirev1.Datamarker{
		Order: marker(5).Order, Delivered: "uuid:1-5", ReadFrom: marker(3).Order,
		Anchor: &wirev1.Anchor{Id: "db1:5", Checksum: 7, Begin: marker(4).Order}, CommittedAtUs: 9, Backfill: []byte{1},
	}}
	data, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var again Datamarker
	if err := again.UnmarshalBinary(data); err != nil || !again.Equal(m) || again.String() != "1/1/5 (uuid:1-5)" {
		t.Errorf("got %v: %v", again, err)
	}
	if again.UnmarshalBinary([]byte{}) == nil || again.UnmarshalBinary([]byte{0xff}) == nil {
		t.Error("other bytes are a datamarker")
	}
	if _, err := (Datamarker{}).MarshalBinary(); err == nil {
		t.Error("no datamarker is stored")
	}
}

func TestAClonedUpdateSharesNothing(t *testing.T) {
	raw := insertOf(1, "ada")
	u := &Update{Schema: users, Transaction: &Transaction{Source: "db1", Number: 1}, raw: raw}
	if err := u.decode(); err != nil {
		t.Fatal(err)
	}
	clone := u.Clone()
	clear(raw)
	if clone.After.Get("name").Text() != "ada" || u.After.Get("name").Text() == "ada" || clone.ID() != "db1:1:0" {
		t.Errorf("got %v of %v", clone.After, u.After)
	}
	for name, value := range clone.After.All() {
		if name != "name" || value.Any() != "ada" {
			t.Errorf("%s is %v", name, value)
		}
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add(insertOf(1, "ada"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		message := &wirev1.Update{}
		valid := proto.Unmarshal(raw, message) == nil
		u := &Update{Schema: users, raw: raw}
		if err := u.decode(); err == nil {
			if !valid {
				t.Errorf("%x is no message, and was read as %v", raw, u.Key)
			}
			if len(message.Key) != len(u.Key) || len(message.After) != len(u.After.Values()) {
				t.Errorf("%x has other values", raw)
			}
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add(bytesOf(bodyOf(1, insertOf(1, "a"), insertOf(2, "b"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseBody(data)
		if err != nil {
			return
		}
		schemas := make([]*Schema, len(b.columns.SchemaIds))
		for i := range schemas {
			schemas[i] = users
		}
		c := &cursor{body: b, assigned: &assignment{Assign: &wirev1.Assign{}}, schemas: schemas}
		for u := c.next(); u != nil; u = c.next() {
			_ = u.decode()
		}
	})
}
