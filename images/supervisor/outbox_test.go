package main

import (
	"os"
	"reflect"
	"testing"
	"time"
)

// outboxPipe runs an outbox into a pipe and returns a function that reads the next frame.
func outboxPipe(t *testing.T) (*Outbox, func() Frame) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() }) // and until then both stay reachable
	o := newOutbox()
	var d Decoder
	buf := make([]byte, 1024)
	next := func() Frame {
		for {
			if f, ok := d.Next(); ok {
				return f
			}
			r.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := r.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			d.Feed(buf[:n])
		}
	}
	go o.Run(int(w.Fd()))
	return o, next
}

func TestUrgentOvertakesABlockedLane(t *testing.T) {
	o, next := outboxPipe(t)
	big := make([]byte, 200*1024) // more than a pipe holds: the writer is stuck in the first frame
	lane := o.newLane()
	for i := uint32(1); i <= 3; i++ {
		go lane.Send(Frame{Type: tStdout, Stream: i, Payload: big})
	}
	waitFor(t, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.busy && len(lane.frames) == laneDepth })
	o.Urgent(Frame{Type: tPong, Stream: 99})
	if f := next(); f.Type != tStdout {
		t.Fatalf("first frame %+v", f.Type)
	}
	if f := next(); f.Type != tPong {
		t.Fatalf("the pong waits behind output: type %#x", f.Type)
	}
}

func TestLanesTakeTurns(t *testing.T) {
	o := newOutbox()
	for stream := uint32(1); stream <= 3; stream++ {
		lane := o.newLane()
		lane.Send(Frame{Type: tStdout, Stream: stream, Offset: 0})
		lane.Send(Frame{Type: tStdout, Stream: stream, Offset: 1})
	}
	o.Urgent(Frame{Type: tPong, Stream: 9})
	var order []uint64
	var d Decoder
	for i := 0; i < 7; i++ {
		d.Feed(o.take().bytes)
		f, _ := d.Next()
		order = append(order, uint64(f.Stream)*10+f.Offset)
	}
	if want := []uint64{90, 10, 20, 30, 11, 21, 31}; !reflect.DeepEqual(order, want) {
		t.Fatalf("%v, want %v", order, want)
	}
}

func TestALaneIsBounded(t *testing.T) {
	o := newOutbox() // nobody writes
	lane := o.newLane()
	sent := make(chan int)
	go func() {
		for i := 1; ; i++ {
			lane.Send(Frame{Type: tStdout})
			sent <- i
		}
	}()
	for i := 1; i <= laneDepth; i++ {
		if got := <-sent; got != i {
			t.Fatalf("%d", got)
		}
	}
	select {
	case i := <-sent:
		t.Fatalf("frame %d was accepted, the bound is %d", i, laneDepth)
	case <-time.After(100 * time.Millisecond):
	}
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !what(); {
		if time.Now().After(deadline) {
			t.Fatal("waited 10 s")
		}
		time.Sleep(time.Millisecond)
	}
}
