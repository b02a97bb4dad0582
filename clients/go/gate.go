package wormhole

// gate decides which updates of one epoch are delivered.
type gate struct {
	parks  bool // an update whose retries are exhausted is parked
	skip   map[string]struct{}
	first  map[string]place  // by row, of its first parked update
	tables map[string]place  // by whole table, of the first parked update of any of its rows
	names  map[string]string // of tables with parked updates: the row that stands for the whole table
}

func newGate(assigned *assignment) *gate {
	g := &gate{
		parks:  assigned.Park,
		skip:   make(map[string]struct{}, len(assigned.Skip)),
		first:  make(map[string]place),
		tables: make(map[string]place),
		names:  make(map[string]string),
	}
	for _, id := range assigned.Skip {
		g.skip[id] = struct{}{}
	}
	for _, row := range assigned.parked {
		g.add(row.key, row.table, row.first)
	}
	return g
}

func (g *gate) skips(u *Update) bool {
	if len(g.skip) == 0 {
		return false
	}
	_, skips := g.skip[u.ID()]
	return skips
}

// holds reports whether an earlier update of a row of u is parked.
func (g *gate) holds(u *Update) (bool, error) {
	whole, hasParked := g.names[u.Table()]
	if !hasParked {
		return false, nil
	}
	rows, err := u.rows()
	if err != nil {
		return false, err
	}
	at := u.place()
	reached := func(places map[string]place, row string) bool {
		first, ok := places[row]
		return ok && !at.before(first)
	}
	for _, row := range rows {
		// An update of the whole table waits for every parked row of it, one of a row for that row and the whole table.
		if row == whole && reached(g.tables, row) || reached(g.first, row) || reached(g.first, whole) {
			return true, nil
		}
	}
	return false, nil
}

// parked records that u is durable at the publisher: later updates of its rows have to be parked.
func (g *gate) parked(u *Update, rows []string) {
	for _, row := range rows {
		g.add(row, u.Table(), u.place())
	}
}

func (g *gate) add(row, table string, at place) {
	whole := wholeTable(table)
	g.names[table] = whole
	lower(g.first, row, at)
	lower(g.tables, whole, at)
}

func lower(places map[string]place, row string, at place) {
	if first, known := places[row]; !known || at.before(first) {
		places[row] = at
	}
}

// parkedKeys returns the keys of the table whose updates are parked, and false if those of the whole table are.
func (g *gate) parkedKeys(table string) ([][]Value, bool, error) {
	whole, hasParked := g.names[table]
	if !hasParked {
		return nil, true, nil
	}
	if _, all := g.first[whole]; all {
		return nil, false, nil
	}
	var keys [][]Value
	for row := range g.first {
		key, rowTable, err := keyFromRow(row)
		if err != nil {
			return nil, false, err
		}
		if rowTable == table {
			keys = append(keys, key)
		}
	}
	return keys, true, nil
}
