package main

// Frame codec: the 32-byte header, its checksums, and an incremental decoder that can find the next SYNC after a
// torn frame. Pure: no I/O. The table of types and the reasons are in PROTOCOL.md; testdata/frames.json binds this
// file and daemon/supervisor/frames.py to the same bytes.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

const (
	headerSize = 32
	// maxPayload bounds every frame both ways; a bigger declared length is a broken header.
	maxPayload = 512 * 1024
	// syncRun is the run of zero bytes that makes a SYNC credible after a torn frame: longer than any frame, so
	// no payload, however hostile its author, can hold it.
	syncRun   = maxPayload + headerSize
	nonceSize = 16
)

var magic = [4]byte{'G', 'S', 'F', 1}

// Frame types, client to supervisor.
const (
	tSync      = 0x01
	tHello     = 0x02
	tPing      = 0x03
	tAssign    = 0x04
	tListExecs = 0x05
	tKillAll   = 0x06
	tStop      = 0x07
	tExec      = 0x10
	tStdin     = 0x11
	tSignal    = 0x12
	tFileOpen  = 0x20
	tFileData  = 0x21 // both ways
	tFileAck   = 0x22 // both ways
	tFileEnd   = 0x23
	tFileAbort = 0x24
)

// Frame types, supervisor to client.
const (
	tSyncAck     = 0x81
	tReady       = 0x82
	tPong        = 0x83
	tReply       = 0x84
	tError       = 0x85
	tStarted     = 0x90
	tStdout      = 0x91
	tStderr      = 0x92
	tExited      = 0x93
	tStdinAck    = 0x94
	tRefused     = 0x95
	tFileEntries = 0xA0
	tFileReply   = 0xA1
	tFileError   = 0xA2
)

const (
	flagEOF    = 0x01 // STDIN: nothing follows
	flagClosed = 0x02 // STDIN_ACK: the command takes no more
)

// Frame is one decoded frame; Payload is the receiver's own.
type Frame struct {
	Type    byte
	Flags   byte
	Stream  uint32
	Offset  uint64
	Payload []byte
}

// putHeader fills the header in front of payload, which starts at buf[headerSize].
func putHeader(buf []byte, typ, flags byte, stream uint32, offset uint64) {
	payload := buf[headerSize:]
	copy(buf, magic[:])
	buf[4], buf[5], buf[6], buf[7] = typ, flags, 0, 0
	binary.BigEndian.PutUint32(buf[8:], stream)
	binary.BigEndian.PutUint32(buf[12:], uint32(len(payload)))
	binary.BigEndian.PutUint64(buf[16:], offset)
	binary.BigEndian.PutUint32(buf[24:], crc32.ChecksumIEEE(payload))
	binary.BigEndian.PutUint32(buf[28:], crc32.ChecksumIEEE(buf[:28]))
}

// encode makes the bytes of one frame.
func encode(f Frame) []byte {
	buf := make([]byte, headerSize+len(f.Payload))
	copy(buf[headerSize:], f.Payload)
	putHeader(buf, f.Type, f.Flags, f.Stream, f.Offset)
	return buf
}

var errTorn = errors.New("torn frame")

// parseHeader checks the fixed part; length and payload checksum come back with it.
func parseHeader(h []byte) (f Frame, length int, sum uint32, err error) {
	if !bytes.Equal(h[:4], magic[:]) || h[6] != 0 || h[7] != 0 ||
		binary.BigEndian.Uint32(h[28:]) != crc32.ChecksumIEEE(h[:28]) {
		return f, 0, 0, errTorn
	}
	n := binary.BigEndian.Uint32(h[12:])
	if n > maxPayload {
		return f, 0, 0, errTorn
	}
	f = Frame{Type: h[4], Flags: h[5], Stream: binary.BigEndian.Uint32(h[8:]), Offset: binary.BigEndian.Uint64(h[16:])}
	return f, int(n), binary.BigEndian.Uint32(h[24:]), nil
}

// Decoder turns bytes into frames. After a torn frame it is deaf until a SYNC that follows syncRun zero bytes;
// Torn counts how often that happened.
type Decoder struct {
	buf   []byte
	start int
	deaf  bool
	zeros int
	Torn  int
}

// Feed takes bytes from the stream. Call Next until it says no before feeding again: that bounds the buffer.
func (d *Decoder) Feed(p []byte) {
	if d.start > 0 {
		n := copy(d.buf, d.buf[d.start:])
		d.buf, d.start = d.buf[:n], 0
	}
	d.buf = append(d.buf, p...)
}

// Next returns the next whole frame, or false when more bytes are needed.
func (d *Decoder) Next() (Frame, bool) {
	for {
		if d.deaf && !d.skipToSync() {
			return Frame{}, false
		}
		rest := d.buf[d.start:]
		if len(rest) < headerSize {
			return Frame{}, false
		}
		f, length, sum, err := parseHeader(rest)
		if err == nil && d.deaf && (f.Type != tSync || length != nonceSize) {
			err = errTorn
		}
		if err != nil {
			d.tear(0)
			continue
		}
		if len(rest) < headerSize+length {
			return Frame{}, false
		}
		payload := rest[headerSize : headerSize+length]
		if crc32.ChecksumIEEE(payload) != sum {
			// The payload's bytes are dropped unread: its author must not be able to plant a SYNC in it.
			d.tear(headerSize + length)
			continue
		}
		f.Payload = append([]byte(nil), payload...)
		d.start += headerSize + length
		d.deaf, d.zeros = false, 0
		return f, true
	}
}

// tear drops n bytes and makes the decoder deaf; in the deaf state the offending byte itself is dropped.
func (d *Decoder) tear(n int) {
	if d.deaf {
		n = max(n, 1)
	} else {
		d.Torn++
	}
	d.deaf, d.zeros = true, 0
	d.start += n
}

// skipToSync eats bytes until a long enough run of zeros has passed and something else begins.
func (d *Decoder) skipToSync() bool {
	for d.start < len(d.buf) {
		if d.buf[d.start] == 0 {
			d.zeros++
		} else if d.zeros >= syncRun {
			return true
		} else {
			d.zeros = 0
		}
		d.start++
	}
	return false
}

// preamble is what a client sends before a SYNC when an earlier client may have left half a frame.
func preamble() []byte { return make([]byte, 2*syncRun) }
