package wormhole

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"wormhole-pubsub/clients/go/internal/wirev1"
)

// authority issues certificates.
type authority struct {
	t           *testing.T
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pool        *x509.CertPool
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "authority"},
	}
	a.certificate, a.key = a.sign(template)
	a.pool.AddCert(a.certificate)
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.serial++
	template.SerialNumber = big.NewInt(a.serial)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	data, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(data)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate, key
}

func (a *authority) issue(name string) tls.Certificate {
	certificate, key := a.sign(&x509.Certificate{
		DNSNames:    []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}
}

func TestWithTLSEachSideProvesItsName(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	for name, test := range map[string]struct {
		server     *authority
		publishers []string
		admitted   bool
		goodbye    wirev1.Goodbye_Reason
	}{
		"a publisher that is named":           {a, []string{"other", "db1"}, true, 0},
		"one that is named for its dataset":   {a, []string{"shop=db1"}, true, 0},
		"one that is named for another":       {a, []string{"crm=db1"}, true, wirev1.Goodbye_NOT_ALLOWED},
		"one that is not named":               {a, []string{"db2"}, false, 0},
		"one of an authority that is unknown": {stranger, []string{"db1"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			shown := make(chan bool, 100)
			config := &tls.Config{
				Certificates: []tls.Certificate{test.server.issue("db1")}, ClientAuth: tls.RequireAndVerifyClientCert,
				ClientCAs: a.pool,
				VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
					shown <- true
					return nil
				},
			}
			p := newFakePublisher(t, grpc.Creds(credentials.NewTLS(config)))
			r := newRecorder()
			running(t, p, r, func(s *Subscriber) {
				s.TLS = &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.issue("s1")}}
				s.Publishers = test.publishers
				s.Token = StaticToken("t0ken\n")
			})
			if !test.admitted {
				select {
				case c := <-p.calls:
					t.Errorf("it is told %q", c.metadata("wormhole-token"))
				case <-shown:
					t.Error("it sees the certificate of the subscriber")
				case <-time.After(300 * time.Millisecond): // several handshakes
				}
				return
			}
			c := p.accept()
			if token := c.metadata("wormhole-token"); len(token) != 1 || token[0] != "t0ken" {
				t.Errorf("the token is %q", token)
			}
			c.send(helloFrame())
			if test.goodbye != 0 {
				c.wantGoodbye(test.goodbye)
				return
			}
			want[*wirev1.SubscriberFrame_Welcome](c)
		})
	}
}
