package main

import (
	"encoding/hex"
	"testing"
)

// The Rust side has the same line in its own test.
func TestFirstKeyHasTheBytesThatTheRustSideUses(t *testing.T) {
	got := hex.EncodeToString(append(partition(1), clustering(1)...))
	if want := "0000000000000000f68cbd0d7c7c04b10000000000000001"; got != want {
		t.Errorf("key 1 is %s, want %s", got, want)
	}
}
