//go:build tools

// Package etcd pins the store behind the tests' API server, apart from it because their dependencies differ.
package etcd

import _ "go.etcd.io/etcd/server/v3"
