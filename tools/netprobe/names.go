package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

const rcodeRefused = 5

// dns asks one server for a name. An answer of any kind means the question arrived, with one exception:
// REFUSED is what a filtering proxy says to a name that is not allowed.
func dns(target, name string, timeout time.Duration) (string, string) {
	query, err := question(name)
	if err != nil {
		return failed, err.Error()
	}
	connection, err := net.DialTimeout("udp", target, timeout)
	if err != nil {
		return classify(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(timeout))
	if _, err := connection.Write(query); err != nil {
		return classify(err)
	}
	answer := make([]byte, 4096)
	count, err := connection.Read(answer)
	if err != nil {
		return classify(err)
	}
	if count < 12 {
		return failed, fmt.Sprintf("an answer of %d bytes", count)
	}
	if code := answer[3] & 0x0f; code == rcodeRefused {
		return blocked, "the resolver answered REFUSED"
	}
	return open, fmt.Sprintf("rcode %d, %d answers", answer[3]&0x0f, binary.BigEndian.Uint16(answer[6:8]))
}

// resolve asks the sandbox's own resolvers, and is blocked when there is none or all stay silent.
func resolve(name string, timeout time.Duration) (string, string) {
	servers, err := nameservers()
	if err != nil {
		return failed, err.Error()
	}
	outcome, detail := blocked, "no name server"
	for _, server := range servers {
		outcome, detail = dns(net.JoinHostPort(server, "53"), name, timeout)
		if outcome == open {
			return outcome, server + ": " + detail
		}
	}
	return outcome, detail
}

func nameservers() ([]string, error) {
	file, err := os.Open("/etc/resolv.conf")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var servers []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "nameserver" {
			servers = append(servers, fields[1])
		}
	}
	return servers, lines.Err()
}

// question is a query for the A records of a name.
func question(name string) ([]byte, error) {
	packet := []byte{0x47, 0x50, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		if len(label) == 0 || len(label) > 63 {
			return nil, fmt.Errorf("%q is no host name", name)
		}
		packet = append(packet, byte(len(label)))
		packet = append(packet, label...)
	}
	return append(packet, 0, 0, 1, 0, 1), nil
}

// echo sends one ICMP echo request, by a ping socket or else a raw one.
func echo(address string, timeout time.Duration) (string, string) {
	ip := net.ParseIP(address)
	if ip == nil {
		return failed, address + " is no address"
	}
	family, protocol, request := syscall.AF_INET, syscall.IPPROTO_ICMP, byte(8)
	var to syscall.Sockaddr
	if four := ip.To4(); four != nil {
		to = &syscall.SockaddrInet4{Addr: [4]byte(four)}
	} else {
		family, protocol, request = syscall.AF_INET6, syscall.IPPROTO_ICMPV6, 128
		to = &syscall.SockaddrInet6{Addr: [16]byte(ip.To16())}
	}
	handle, err := syscall.Socket(family, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, protocol)
	if err != nil {
		handle, err = syscall.Socket(family, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, protocol)
	}
	if err != nil {
		return unsupported, "no ping socket: " + err.Error()
	}
	defer syscall.Close(handle)
	limit := syscall.NsecToTimeval(timeout.Nanoseconds())
	if err := syscall.SetsockoptTimeval(handle, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		return failed, err.Error()
	}
	packet := []byte{request, 0, 0, 0, 0x47, 0x50, 0, 1}
	binary.BigEndian.PutUint16(packet[2:], checksum(packet))
	if err := syscall.Sendto(handle, packet, 0, to); err != nil {
		return classify(err)
	}
	answer := make([]byte, 512)
	if _, _, err := syscall.Recvfrom(handle, answer, 0); err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
			return blocked, "no answer"
		}
		return classify(err)
	}
	return open, "an answer came back"
}

func checksum(packet []byte) uint16 {
	var sum uint32
	for index := 0; index+1 < len(packet); index += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[index:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
