// Reads a PostgreSQL log with jackc/pglogrepl in this process.
//
//	peer typed  every value of every row, as pgx's types make it (pglogrepl's own example)
//	peer text   integers are parsed, the rest stays text
//
// The environment says what to read; see benchmarks/postgres/readers.py for it and for the line that is printed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

const answers = 10 * time.Second

type outcome struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	Checksum int64   `json:"checksum"`
	PeakMib  float64 `json:"peak_mib"`
	first    time.Time
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func peak() float64 {
	file, err := os.Open("/proc/self/status")
	fail(err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			fail(err)
			return kib / 1024
		}
	}
	return 0
}

func text(row *pglogrepl.TupleData) int64 {
	sum := int64(0)
	for _, at := range []int{0, 1, 3} {
		value, err := row.Columns[at].Int64()
		fail(err)
		sum += value
	}
	for _, at := range []int{2, 4} {
		if row.Columns[at].DataType == pglogrepl.TupleDataTypeText {
			sum++
		}
	}
	return sum + int64(len(string(row.Columns[5].Data))+len(string(row.Columns[6].Data)))
}

func typed(row *pglogrepl.TupleData, relation *pglogrepl.RelationMessage, types *pgtype.Map) int64 {
	sum := int64(0)
	for i, column := range row.Columns {
		kind := relation.Columns[i].DataType
		known, ok := types.TypeForOID(kind)
		if !ok {
			panic(fmt.Sprintf("no type %d", kind))
		}
		value, err := known.Codec.DecodeValue(types, kind, pgtype.TextFormatCode, column.Data)
		fail(err)
		switch v := value.(type) {
		case int64:
			sum += v
		case int32:
			sum += int64(v)
		case int16:
			sum += int64(v)
		case string:
			sum += int64(len(v))
		default:
			if v != nil {
				sum++
			}
		}
	}
	return sum
}

func main() {
	wanted, err := strconv.ParseInt(os.Getenv("PEER_ROWS"), 10, 64)
	fail(err)
	address := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(os.Getenv("PEER_USER"), os.Getenv("PEER_PASSWORD")),
		Host:     os.Getenv("PEER_HOST") + ":" + os.Getenv("PEER_PORT"),
		Path:     os.Getenv("PEER_DATABASE"),
		RawQuery: "replication=database&sslmode=disable",
	}
	ctx := context.Background()
	connection, err := pgconn.Connect(ctx, address.String())
	fail(err)
	arguments := []string{"proto_version '1'", "publication_names '" + os.Getenv("PEER_PUBLICATION") + "'"}
	options := pglogrepl.StartReplicationOptions{PluginArgs: arguments}
	fail(pglogrepl.StartReplication(ctx, connection, os.Getenv("PEER_SLOT"), 0, options))

	var done outcome
	var at pglogrepl.LSN
	relations, types := map[uint32]*pglogrepl.RelationMessage{}, pgtype.NewMap()
	next := time.Now().Add(answers)
	for done.Rows < wanted {
		if time.Now().After(next) {
			fail(pglogrepl.SendStandbyStatusUpdate(ctx, connection, pglogrepl.StandbyStatusUpdate{WALWritePosition: at}))
			next = time.Now().Add(answers)
		}
		received, err := connection.ReceiveMessage(ctx)
		fail(err)
		data, ok := received.(*pgproto3.CopyData)
		if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		log, err := pglogrepl.ParseXLogData(data.Data[1:])
		fail(err)
		at = log.WALStart
		message, err := pglogrepl.Parse(log.WALData)
		fail(err)
		switch m := message.(type) {
		case *pglogrepl.RelationMessage:
			relations[m.RelationID] = m
		case *pglogrepl.InsertMessage:
			if done.Rows == 0 {
				done.first = time.Now()
			}
			done.Rows++
			if os.Args[1] == "typed" {
				done.Checksum += typed(m.Tuple, relations[m.RelationID], types)
			} else {
				done.Checksum += text(m.Tuple)
			}
		}
	}
	done.Seconds, done.PeakMib = time.Since(done.first).Seconds(), peak()
	fail(json.NewEncoder(os.Stdout).Encode(done))
}
