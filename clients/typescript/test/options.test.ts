import assert from "node:assert/strict";
import { test } from "node:test";

import { ConfigError } from "../src/errors.js";
import type { SubscriberOptions } from "../src/options.js";
import { namesOf } from "../src/tls.js";
import { settings } from "./publisher.js";

test("each wrong option is named", () => {
  const wrong: [RegExp, Partial<SubscriberOptions>][] = [
    [/application/, { application: "" }],
    [/id: 1 to 255/, { id: "x".repeat(256) }],
    [/dial/, { dial: [] }],
    [/no host:port/, { dial: ["db-1"] }],
    [/without TLS every update/, { dial: ["db-1:7490"] }],
    [/without TLS a token/, { dial: ["db-1:7490"], token: "t", insecure: true }],
    [/publishers is set without tls/, { publishers: ["db1"] }],
    [/publishers: with tls/, { tls: { ca: "ca.pem" }, token: "t" }],
    [/cert and key belong together/, { tls: { ca: "ca.pem", cert: "c.pem" }, publishers: ["db1"] }],
    [/or a token, are needed/, { tls: { ca: "ca.pem" }, publishers: ["db1"] }],
    [/exactly one of onUpdate and onUpdates/, { handler: {} }],
    [/credit = 0/, { credit: 0 }],
    [/maxFrame = 4095/, { maxFrame: 4095 }],
    [/attempts = 0/, { retry: { attempts: 0 } }],
    [/weight = NaN/, { weight: NaN }],
    [/handlerTimeoutMs = -1/, { handlerTimeoutMs: -1 }],
  ];
  for (const [why, options] of wrong) {
    assert.throws(() => settings(options), (error) => error instanceof ConfigError && why.test(error.message));
  }
});

test("publishers of this machine need no TLS, and others not with insecure", () => {
  for (const address of ["localhost:1", "127.0.0.2:1", "[::1]:1"]) settings({ dial: [address], token: "t" });
  settings({ dial: ["db-1:7490"], insecure: true });
  assert.throws(() => settings({ dial: ["127.0.0.1.example:1"] }), ConfigError);
});

test("the names of a certificate are not mistaken for several", () => {
  const names = (subjectaltname: string): string[] => namesOf({ subject: { CN: "common" }, subjectaltname });
  assert.deepEqual(names("DNS:db1, DNS:db2, IP Address:127.0.0.1"), ["common", "db1", "db2"]);
  assert.deepEqual(names('DNS:"a, DNS:db1, b", DNS:c'), ["common", '"a, DNS:db1, b"', "c"]);
  assert.deepEqual(names('URI:"x\\", DNS:db1, y", DNS:c'), ["common", "c"]);
});
