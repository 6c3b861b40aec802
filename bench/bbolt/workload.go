package main

import (
	"encoding/binary"
	"time"
)

// The same records as bench/src/workload.rs: 8 bytes of partition, 16 of clustering, 32 of value.

const rowsPerPartition = 100_000

var value = []byte("thirty-two bytes of record value")

func partition(index uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, index/rowsPerPartition)
}

func clustering(index uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, scramble(index)), index)
}

// freshRecord is the expiry in Unix milliseconds, then the value.
func freshRecord(expires time.Time) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(expires.UnixMilli())), value...)
}

func isLive(record []byte) bool {
	return uint64(time.Now().UnixMilli()) < binary.BigEndian.Uint64(record)
}

// indexEntry is the key of a record in the index of expiries.
func indexEntry(record []byte, index uint64) []byte {
	entry := append([]byte(nil), record[:8]...)
	return append(append(entry, partition(index)...), clustering(index)...)
}

// chance is repeatable pseudo-randomness.
type chance uint64

func seeded(seed uint64) *chance {
	c := chance(scramble(seed))
	return &c
}

func (c *chance) below(bound uint64) uint64 {
	*c += 0x9E37_79B9_7F4A_7C15
	return scramble(uint64(*c)) % bound
}

// scramble mixes 64 bits one to one: multiply, fold the high half down, twice.
func scramble(number uint64) uint64 {
	mixed := (number + 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93
	mixed = (mixed ^ mixed>>32) * 0xD6E8_FEB8_6659_FD93
	return mixed ^ mixed>>32
}
