package raftnode

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// ErrStranger is returned when a peer on the raft port shows a certificate of the
// right authority that is no member's.
var ErrStranger = errors.New("the certificate is no member's")

// serverTLS is cfg for accepted connections: beyond the authority it holds the
// peer to the members' hosts. The same authority signs the queue's certificate,
// the trace store's and, where it is a company's own, everybody's; whoever holds
// one of those could else vote, append and send snapshots. A member's names its
// own host already, since the others compare it when they dial.
func serverTLS(cfg *tls.Config, hosts func() []string) *tls.Config {
	if cfg == nil {
		return nil
	}
	out := cfg.Clone()
	out.VerifyConnection = func(peer tls.ConnectionState) error { // on resumption too
		if cfg.VerifyConnection != nil {
			if err := cfg.VerifyConnection(peer); err != nil {
				return err
			}
		}
		return ofMember(peer, hosts())
	}
	return out
}

func ofMember(peer tls.ConnectionState, hosts []string) error {
	if len(peer.PeerCertificates) == 0 {
		return fmt.Errorf("%w: there is none", ErrStranger)
	}
	cert := peer.PeerCertificates[0]
	for _, host := range hosts {
		if cert.VerifyHostname(host) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %q is for %v %v, the members are at %v", ErrStranger, cert.Subject.CommonName, cert.DNSNames, cert.IPAddresses, hosts)
}

// memberHosts are the hosts at which members are, as the file says and as the
// log does. Both count: of a member that has moved, one of them is behind.
func (n *Node) memberHosts() []string {
	hosts := hostsOf(n.cfg, n.stream.advertised)
	r := n.group.raft.Load()
	if r == nil {
		return hosts
	}
	for _, s := range r.GetConfiguration().Configuration().Servers {
		hosts = append(hosts, hostOf(string(s.Address)))
	}
	return hosts
}

// hostsOf are the hosts that the configuration names, own being this node's.
func hostsOf(cfg Config, own net.Addr) []string {
	hosts := []string{hostOf(own.String())}
	for _, s := range cfg.Servers {
		hosts = append(hosts, hostOf(s.RaftAddr))
	}
	return hosts
}

func hostOf(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	return host
}
