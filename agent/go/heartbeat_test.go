//go:build linux && amd64

package stackd

import (
	"encoding/binary"
	"syscall"
	"testing"
	"time"
)

// What the daemon reads of a cell: beats, limit in ms, thread, name.
func cellAt(page []byte, index int) (beats uint64, limitMs uint32, name string) {
	at := page[64*index:]
	text := at[16:64]
	for i, b := range text {
		if b == 0 {
			text = text[:i]
			break
		}
	}
	return binary.LittleEndian.Uint64(at), binary.LittleEndian.Uint32(at[8:]), string(text)
}

func anonymousPage(t *testing.T) []byte {
	t.Helper()
	page, err := syscall.Mmap(-1, 0, heartbeatsBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func TestHeartbeatsAreWrittenWhereTheDaemonLooks(t *testing.T) {
	page := anonymousPage(t)
	heartbeats.moveTo(page)
	h := NewHeartbeat("loop", 1500*time.Millisecond)
	if beats, limit, name := cellAt(page, h.index); beats != 0 || limit != 1500 || name != "loop" {
		t.Fatal(beats, limit, name)
	}
	h.Beat()
	h.Beat()
	if beats, _, _ := cellAt(page, h.index); beats != 2 {
		t.Fatal(beats)
	}
	h.Suspend()
	if beats, _, _ := cellAt(page, h.index); beats != 0 {
		t.Fatal(beats)
	}
	h.Beat()
	if beats, _, _ := cellAt(page, h.index); beats != 3 {
		t.Fatal("beats begin again, so two looks could see the same number:", beats)
	}
	next := anonymousPage(t)
	heartbeats.moveTo(next)
	if beats, limit, name := cellAt(next, h.index); beats != 3 || limit != 1500 || name != "loop" {
		t.Fatal("not with the next daemon:", beats, limit, name)
	}
	h.Close()
	h.Beat()
	if _, limit, _ := cellAt(next, h.index); limit != 0 {
		t.Fatal("still watched")
	}
	heartbeats.moveTo(nil)
}

func TestMoreHeartbeatsThanPlacesAreNotWatched(t *testing.T) {
	var all []*Heartbeat
	for i := 0; i < heartbeatsMost+1; i++ {
		all = append(all, NewHeartbeat("many", time.Second))
	}
	if all[heartbeatsMost].index != -1 || all[heartbeatsMost-1].index < 0 {
		t.Fatal("64 places expected")
	}
	for _, h := range all {
		h.Beat()
		h.Close()
	}
}

func TestMessagesHaveTheSizesOfTheWire(t *testing.T) {
	for _, m := range []struct {
		encoded []byte
		size    int
	}{{helloMessage(0, "name", shareMemory), 1448}, {fileMessage(1, 0), 16}, {nameMessage("x"), 72}, {reportFileMessage(), 80},
		{dumpRequestMessage(), 8}} {
		if len(m.encoded) != m.size || kindOf(m.encoded) == 0 {
			t.Fatal(len(m.encoded), m.size)
		}
	}
}
