package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand"
	"os"
	"testing"
)

type vector struct {
	Name       string `json:"name"`
	Type       byte   `json:"type"`
	Flags      byte   `json:"flags"`
	Stream     uint32 `json:"stream"`
	Offset     uint64 `json:"offset"`
	PayloadHex string `json:"payload_hex"`
	FrameHex   string `json:"frame_hex"`
}

type vectors struct {
	Valid   []vector `json:"valid"`
	Invalid []struct {
		Name  string `json:"name"`
		Bytes string `json:"bytes_hex"`
	} `json:"invalid"`
}

func loadVectors(t testing.TB) vectors {
	raw, err := os.ReadFile("testdata/frames.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Valid) < 8 || len(v.Invalid) < 4 {
		t.Fatalf("too few vectors: %d valid, %d invalid", len(v.Valid), len(v.Invalid))
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenVectors(t *testing.T) {
	for _, v := range loadVectors(t).Valid {
		f := Frame{v.Type, v.Flags, v.Stream, v.Offset, unhex(t, v.PayloadHex)}
		want := unhex(t, v.FrameHex)
		if got := encode(f); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded %x, want %x", v.Name, got, want)
		}
		var d Decoder
		for _, b := range want { // byte by byte: nothing may depend on how reads are cut
			d.Feed([]byte{b})
		}
		got, ok := d.Next()
		if !ok || got.Type != f.Type || got.Flags != f.Flags || got.Stream != f.Stream || got.Offset != f.Offset ||
			!bytes.Equal(got.Payload, f.Payload) {
			t.Errorf("%s: decoded %+v %v", v.Name, got, ok)
		}
	}
}

func TestInvalidVectorsMakeDeaf(t *testing.T) {
	for _, v := range loadVectors(t).Invalid {
		var d Decoder
		d.Feed(unhex(t, v.Bytes))
		if f, ok := d.Next(); ok || d.Torn != 1 {
			t.Errorf("%s: frame %+v ok=%v torn=%d", v.Name, f, ok, d.Torn)
		}
		d.Feed(encode(Frame{Type: tPing}))
		if _, ok := d.Next(); ok {
			t.Errorf("%s: heard a frame while deaf", v.Name)
		}
	}
}

func feedAll(d *Decoder, stream []byte, cut func() int) []Frame {
	var out []Frame
	for len(stream) > 0 {
		n := min(cut(), len(stream))
		d.Feed(stream[:n])
		stream = stream[n:]
		for f, ok := d.Next(); ok; f, ok = d.Next() {
			out = append(out, f)
		}
	}
	return out
}

func TestSyncAfterTornFrameAtEveryPlace(t *testing.T) {
	sync := encode(Frame{Type: tSync, Payload: bytes.Repeat([]byte{7}, nonceSize)})
	// The dead client's payload is hostile: it holds a SYNC and an EXEC, and as many zeros as fit before them.
	hostile := make([]byte, maxPayload)
	tail := append(append([]byte{}, sync...), encode(Frame{Type: tExec, Payload: []byte("{}")})...)
	copy(hostile[maxPayload-len(tail):], tail)
	whole := encode(Frame{Type: tFileData, Stream: 3, Payload: hostile})
	zero := encode(Frame{Type: tFileData, Stream: 3, Payload: make([]byte, 500_000)})
	for _, dead := range [][]byte{whole, zero} {
		for _, k := range []int{1, 4, 16, 31, 32, 33, 1000, len(dead) - 200, len(dead) - 1} {
			stream := append([]byte{}, dead[:k]...)
			stream = append(stream, preamble()...)
			stream = append(stream, sync...)
			stream = append(stream, encode(Frame{Type: tPing, Stream: 9})...)
			var d Decoder
			got := feedAll(&d, stream, func() int { return 4096 })
			if len(got) == 3 && got[0].Type == tFileData {
				got = got[1:] // a tail of zeros completed by zeros is the frame that was meant
			}
			if len(got) != 2 || got[0].Type != tSync || got[1].Type != tPing {
				t.Errorf("cut at %d: %d frames %+v", k, len(got), got)
			}
		}
	}
}

func TestHostilePayloadNeverSpeaksWhileDeaf(t *testing.T) {
	sync := encode(Frame{Type: tSync, Payload: make([]byte, nonceSize)})
	inner := append(make([]byte, maxPayload-len(sync)), sync...)
	var d Decoder
	d.Feed([]byte("garbage that makes the decoder deaf......"))
	d.Next()
	d.Feed(encode(Frame{Type: tStdin, Payload: inner}))
	if f, ok := d.Next(); ok {
		t.Fatalf("a payload was obeyed: %+v", f)
	}
}

func TestRandomCutsKeepFrames(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var stream []byte
	for i := 0; i < 200; i++ {
		p := make([]byte, r.Intn(3000))
		r.Read(p)
		stream = append(stream, encode(Frame{Type: byte(r.Intn(256)), Stream: uint32(i), Offset: r.Uint64(), Payload: p})...)
	}
	var d Decoder
	got := feedAll(&d, stream, func() int { return 1 + r.Intn(5000) })
	if len(got) != 200 || d.Torn != 0 {
		t.Fatalf("%d frames, torn %d", len(got), d.Torn)
	}
	for i, f := range got {
		if f.Stream != uint32(i) {
			t.Fatalf("frame %d is %d", i, f.Stream)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	for _, v := range loadVectors(f).Valid {
		f.Add(unhex(f, v.FrameHex), 7)
	}
	f.Add(append(preamble()[:64], encode(Frame{Type: tSync, Payload: make([]byte, 16)})...), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 1 {
			cut = 1
		}
		var d, whole Decoder
		got := feedAll(&d, data, func() int { return cut })
		once := feedAll(&whole, data, func() int { return len(data) })
		if len(got) != len(once) || d.Torn != whole.Torn {
			t.Fatalf("cut %d: %d frames torn %d, in one piece %d torn %d", cut, len(got), d.Torn, len(once), whole.Torn)
		}
		if len(d.buf)-d.start > maxPayload+headerSize {
			t.Fatalf("the decoder holds %d bytes", len(d.buf)-d.start)
		}
		for _, x := range got {
			if !bytes.Contains(data, encode(x)) {
				t.Fatalf("frame out of nothing: %+v", x)
			}
		}
	})
}
