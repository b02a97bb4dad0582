// Reads a binlog with go-mysql: in this process, or as JSON lines for a second process, which is here as well.
//
//	peer read             every value of every row, in this process
//	peer send ADDRESS     each row as a line of JSON over TCP
//	peer receive ADDRESS  the other end: every value of every line
//	peer receive -        the same from standard input
//
// The environment says what to read; see benchmarks/peers/outcome.py for it and for the line that is printed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

const pieces = 1 << 18 // bytes that are written or read at once

type outcome struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	Checksum int64   `json:"checksum"`
	first    time.Time
}

func (o *outcome) took(row int64) {
	if o.Rows == 0 {
		o.first = time.Now()
	}
	o.Rows++
	o.Checksum += row
}

func (o *outcome) print() {
	o.Seconds = time.Since(o.first).Seconds()
	fail(json.NewEncoder(os.Stdout).Encode(o))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(name string) int64 {
	value, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	fail(err)
	return value
}

// integer returns a value of any integer type that go-mysql makes.
func integer(value any) int64 {
	switch v := value.(type) {
	case int64:
		return v
	case uint64:
		return int64(v)
	case int32:
		return int64(v)
	case int8:
		return int64(v)
	}
	panic(fmt.Sprintf("no integer: %T", value))
}

func there(value any) int64 {
	if value == nil {
		return 0
	}
	return 1
}

func text(value any) int64 {
	switch v := value.(type) {
	case string:
		return int64(len(v))
	case []byte:
		return int64(len(v))
	}
	panic(fmt.Sprintf("no text: %T", value))
}

// each calls took with every row event until it returns false.
func each(took func(*replication.RowsEvent) bool) {
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 1<<30 + uint32(rand.Intn(1<<30)),
		Flavor:   "mariadb",
		Host:     os.Getenv("PEER_HOST"),
		Port:     uint16(number("PEER_PORT")),
		User:     os.Getenv("PEER_USER"),
		Password: os.Getenv("PEER_PASSWORD"),
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	stream, err := syncer.StartSync(mysql.Position{Name: os.Getenv("PEER_FILE"), Pos: 4})
	fail(err)
	for {
		event, err := stream.GetEvent(context.Background())
		fail(err)
		if rows, ok := event.Event.(*replication.RowsEvent); ok && !took(rows) {
			return
		}
	}
}

func read(wanted int64) {
	var done outcome
	each(func(event *replication.RowsEvent) bool {
		for _, r := range event.Rows {
			done.took(integer(r[0]) + integer(r[1]) + there(r[2]) + integer(r[3]) + there(r[4]) + text(r[5]) + text(r[6]))
		}
		return done.Rows < wanted
	})
	done.print()
}

type message struct {
	Op    string         `json:"op"`
	Table string         `json:"table"`
	After map[string]any `json:"after"`
	Data  map[string]any `json:"data,omitempty"`
}

func send(address string, wanted int64) {
	connection, err := net.Dial("tcp", address)
	fail(err)
	out := bufio.NewWriterSize(connection, pieces)
	encoder := json.NewEncoder(out)
	sent := int64(0)
	each(func(event *replication.RowsEvent) bool {
		names, table := event.Table.ColumnNameString(), string(event.Table.Table)
		for _, row := range event.Rows {
			after := make(map[string]any, len(row))
			for i, value := range row {
				if bytes, ok := value.([]byte); ok {
					value = string(bytes)
				}
				after[names[i]] = value
			}
			fail(encoder.Encode(message{Op: "c", Table: table, After: after}))
			sent++
		}
		return sent < wanted
	})
	fail(out.Flush())
	fail(connection.Close())
}

func receive(input io.Reader, wanted int64) {
	var done outcome
	in := bufio.NewReaderSize(input, pieces)
	for done.Rows < wanted {
		line, err := in.ReadSlice('\n')
		fail(err)
		var got message
		if err := json.Unmarshal(line, &got); err != nil {
			continue // a line that says something else
		}
		row := got.After
		if row == nil {
			row = got.Data // Maxwell's name for it
		}
		if row == nil {
			continue
		}
		integers := int64(row["id"].(float64)) + int64(row["user"].(float64)) + int64(row["state"].(float64))
		done.took(integers + there(row["amount"]) + there(row["changed"]) + text(row["note"]) + text(row["body"]))
	}
	done.print()
}

func main() {
	wanted := number("PEER_ROWS")
	switch {
	case os.Args[1] == "read":
		read(wanted)
	case os.Args[1] == "send":
		send(os.Args[2], wanted)
	case os.Args[2] == "-":
		receive(os.Stdin, wanted)
	default:
		listener, err := net.Listen("tcp", os.Args[2])
		fail(err)
		fmt.Println("ready")
		connection, err := listener.Accept()
		fail(err)
		receive(connection, wanted)
	}
}
