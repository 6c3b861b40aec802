// Command bbolt-bench measures bbolt as the reference system uses it: a read transaction that
// checks, then an update transaction that writes and syncs. It prints one JSON object.
//
// Usage: bbolt-bench -dir DIR -op load|insert|renew|get|range -callers N -seconds S -records N
// -first N. Records are numbered; workload.go derives the same bytes as the Rust side.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
)

const (
	life      = 24 * time.Hour
	loadBatch = 10_000
	rangeRows = 10
)

var (
	dataBucket = []byte("data")
	ttlBucket  = []byte("ttl")
	errMissed  = errors.New("an operation did not find what it needs")
)

type settings struct {
	dir     string
	op      string
	callers int
	seconds float64
	records uint64
	first   uint64
}

// result is what the Rust side reads. Times are microseconds.
type result struct {
	OpsPerSecond float64 `json:"opsPerSecond"`
	Done         int     `json:"done"`
	P50          float64 `json:"p50"`
	P99          float64 `json:"p99"`
	P999         float64 `json:"p999"`
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", "", "directory of the database")
	flag.StringVar(&s.op, "op", "", "load, insert, renew, get or range")
	flag.IntVar(&s.callers, "callers", 1, "goroutines")
	flag.Float64Var(&s.seconds, "seconds", 1, "how long")
	flag.Uint64Var(&s.records, "records", 0, "records loaded, or to load")
	flag.Uint64Var(&s.first, "first", 0, "number of the first record to load or insert")
	flag.Parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "bbolt-bench:", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	// The Rust contestants have two threads as well.
	runtime.GOMAXPROCS(2)
	db, err := bbolt.Open(filepath.Join(s.dir, "bbolt"), 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if s.op == "load" {
		return load(db, s.first, s.first+s.records)
	}
	res, err := measure(db, s)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}

func load(db *bbolt.DB, first, end uint64) error {
	for ; first < end; first += loadBatch {
		err := db.Update(func(tx *bbolt.Tx) error {
			for index := first; index < min(first+loadBatch, end); index++ {
				if err := put(tx, index, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// put writes the record and its entry in the index of expiries, and removes the entry of old.
func put(tx *bbolt.Tx, index uint64, old []byte) error {
	data, err := tx.CreateBucketIfNotExists(dataBucket)
	if err != nil {
		return err
	}
	rows, err := data.CreateBucketIfNotExists(partition(index))
	if err != nil {
		return err
	}
	ttl, err := tx.CreateBucketIfNotExists(ttlBucket)
	if err != nil {
		return err
	}
	if old != nil {
		if err := ttl.Delete(indexEntry(old, index)); err != nil {
			return err
		}
	}
	record := freshRecord(time.Now().Add(life))
	if err := rows.Put(clustering(index), record); err != nil {
		return err
	}
	return ttl.Put(indexEntry(record, index), nil)
}

// read returns a copy of the live record, or nil, in a read transaction of its own.
func read(db *bbolt.DB, index uint64) (record []byte, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		data := tx.Bucket(dataBucket)
		if data == nil {
			return nil
		}
		rows := data.Bucket(partition(index))
		if rows == nil {
			return nil
		}
		if found := rows.Get(clustering(index)); found != nil && isLive(found) {
			record = bytes.Clone(found)
		}
		return nil
	})
	return record, err
}

func insert(db *bbolt.DB, index uint64) (bool, error) {
	record, err := read(db, index)
	if err != nil || record != nil {
		return false, err
	}
	return true, db.Update(func(tx *bbolt.Tx) error { return put(tx, index, nil) })
}

func renew(db *bbolt.DB, index uint64) (bool, error) {
	record, err := read(db, index)
	if err != nil || record == nil || !bytes.Equal(record[8:], value) {
		return false, err
	}
	return true, db.Update(func(tx *bbolt.Tx) error { return put(tx, index, record) })
}

func scan(db *bbolt.DB, index uint64) (bool, error) {
	var rows [][]byte
	err := db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(dataBucket).Bucket(partition(index)).Cursor()
		for key, record := cursor.Seek(clustering(index)); key != nil; key, record = cursor.Next() {
			if isLive(record) {
				rows = append(rows, bytes.Clone(key), bytes.Clone(record))
			}
			if len(rows) == 2*rangeRows {
				break
			}
		}
		return nil
	})
	return len(rows) > 0, err
}

func measure(db *bbolt.DB, s settings) (result, error) {
	var (
		wait   sync.WaitGroup
		absent atomic.Uint64
		times  = make([][]int64, s.callers)
		errs   = make([]error, s.callers)
	)
	absent.Store(s.first)
	begin := time.Now()
	deadline := begin.Add(time.Duration(s.seconds * float64(time.Second)))
	for caller := range s.callers {
		wait.Go(func() {
			times[caller], errs[caller] = call(db, s, uint64(caller), &absent, deadline)
		})
	}
	wait.Wait()
	elapsed := time.Since(begin).Seconds()
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) == 0 {
		return result{}, errors.Join(append(errs, errors.New("nothing was done"))...)
	}
	at := func(quantile float64) float64 {
		return float64(all[int(quantile*float64(len(all)-1))]) / 1e3
	}
	return result{
		OpsPerSecond: float64(len(all)) / elapsed,
		Done:         len(all),
		P50:          at(0.5), P99: at(0.99), P999: at(0.999),
	}, errors.Join(errs...)
}

// call performs operations until the deadline and returns how long each took, in nanoseconds.
func call(
	db *bbolt.DB, s settings, caller uint64, absent *atomic.Uint64, deadline time.Time,
) (times []int64, err error) {
	chance := seeded(caller)
	for {
		start := time.Now()
		if !start.Before(deadline) {
			return times, nil
		}
		var done bool
		switch s.op {
		case "insert":
			done, err = insert(db, absent.Add(1)-1)
		case "renew":
			done, err = renew(db, chance.below(s.records))
		case "get":
			var record []byte
			record, err = read(db, chance.below(s.records))
			done = record != nil
		case "range":
			done, err = scan(db, chance.below(s.records))
		default:
			return nil, fmt.Errorf("there is no operation %q", s.op)
		}
		if err == nil && !done {
			err = errMissed
		}
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Nanoseconds())
	}
}
