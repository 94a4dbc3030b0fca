package main

import (
	"bufio"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	open        = "open"
	refused     = "refused"
	blocked     = "blocked"
	unsupported = "unsupported"
	failed      = "error"
)

func perform(check Check, timeout time.Duration) (string, string) {
	target := net.JoinHostPort(check.Address, strconv.Itoa(check.Port))
	switch check.Kind {
	case "tcp":
		return tcp(target, timeout)
	case "tls":
		return secure(target, check.ServerName, timeout)
	case "udp":
		return udp(target, quicProbe(), timeout)
	case "dns":
		return dns(target, check.Name, timeout)
	case "resolve":
		return resolve(check.Name, timeout)
	case "icmp":
		return echo(check.Address, timeout)
	case "gateway":
		return gateway(check.Port, timeout)
	case "interfaces":
		return interfaces()
	}
	return failed, "unknown kind " + check.Kind
}

// classify turns a network error into an outcome. A refusal is an answer: the packet arrived.
func classify(err error) (string, string) {
	var timeout net.Error
	switch {
	case err == nil:
		return open, ""
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return refused, err.Error()
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ENETDOWN), errors.Is(err, syscall.EHOSTDOWN),
		errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return blocked, err.Error()
	case errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EPROTONOSUPPORT):
		return unsupported, err.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return blocked, "no answer"
	}
	return failed, err.Error()
}

func tcp(target string, timeout time.Duration) (string, string) {
	connection, err := net.DialTimeout("tcp", target, timeout)
	if err != nil {
		return classify(err)
	}
	defer connection.Close()
	return open, "connected"
}

// secure counts as open only when the handshake completes: a filter of server names lets the TCP
// connection come up and cuts it at the name.
func secure(target, name string, timeout time.Duration) (string, string) {
	dialer := &net.Dialer{Timeout: timeout}
	// Whose certificate it is does not matter here, only whether an answer comes through.
	settings := &tls.Config{ServerName: name, InsecureSkipVerify: true} //nolint:gosec
	connection, err := dialer.Dial("tcp", target)
	if err != nil {
		return classify(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(timeout))
	if err := tls.Client(connection, settings).Handshake(); err != nil {
		var alert tls.AlertError
		if errors.As(err, &alert) {
			return refused, "the server answered: " + err.Error()
		}
		return blocked, "connected, but no handshake: " + err.Error()
	}
	return open, "handshake completed"
}

func udp(target string, payload []byte, timeout time.Duration) (string, string) {
	connection, err := net.DialTimeout("udp", target, timeout)
	if err != nil {
		return classify(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(timeout))
	if _, err := connection.Write(payload); err != nil {
		return classify(err)
	}
	answer := make([]byte, 2048)
	count, err := connection.Read(answer)
	if err != nil {
		return classify(err)
	}
	return open, fmt.Sprintf("%d bytes came back", count)
}

// quicProbe is a long-header packet of an unknown version: every QUIC server answers it with the
// versions it knows.
func quicProbe() []byte {
	packet := make([]byte, 1200)
	copy(packet, []byte{0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0})
	return packet
}

// gateway tries a port of the default gateway, where a bridge's host listens.
func gateway(port int, timeout time.Duration) (string, string) {
	address, err := defaultGateway()
	if err != nil {
		return failed, err.Error()
	}
	if address == "" {
		return blocked, "no default route"
	}
	outcome, detail := tcp(net.JoinHostPort(address, strconv.Itoa(port)), timeout)
	return outcome, address + ": " + detail
}

func defaultGateway() (string, error) {
	file, err := os.Open("/proc/net/route")
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || fields[1] != "00000000" || fields[2] == "00000000" {
			continue
		}
		bytes, err := hex.DecodeString(fields[2])
		if err != nil || len(bytes) != 4 {
			return "", fmt.Errorf("/proc/net/route has the gateway %q", fields[2])
		}
		return net.IPv4(bytes[3], bytes[2], bytes[1], bytes[0]).String(), nil
	}
	return "", lines.Err()
}

// interfaces is open when there is anything but loopback.
func interfaces() (string, string) {
	found, err := net.Interfaces()
	if err != nil {
		return failed, err.Error()
	}
	var names []string
	for _, item := range found {
		if item.Flags&net.FlagLoopback == 0 {
			names = append(names, item.Name)
		}
	}
	if len(names) > 0 {
		return open, strings.Join(names, " ")
	}
	return blocked, "loopback only"
}
