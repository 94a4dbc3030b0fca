//go:build tools

// Package apiserver pins the programs that the tests run beside Cilium's CRDs; it builds nothing itself.
package apiserver

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
