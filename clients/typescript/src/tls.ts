/** The certificates of a connection. */

import { readFile } from "node:fs/promises";
import { createSecureContext, type PeerCertificate } from "node:tls";

import { type ChannelCredentials, credentials } from "@grpc/grpc-js";

import { ConfigError } from "./errors.js";
import type { Settings, TlsFiles } from "./options.js";
import { GoodbyeReason, type Refusal } from "./session.js";

/** What is known of the publisher once its certificate was accepted. */
export interface Trusted {
  readonly credentials: ChannelCredentials;
  /** Why the publisher may not push the dataset; `undefined`: it may. */
  refuses(dataset: string): Refusal | undefined;
}

/**
 * Credentials for one connection. The handshake fails unless the publisher's certificate has one of the names in
 * `publishers`, so nothing is said to another server, and no token is sent to it.
 */
export async function trust({ tls, publishers }: Settings): Promise<Trusted> {
  if (tls === undefined) return { credentials: credentials.createInsecure(), refuses: () => undefined };
  let names: readonly string[] = [];
  const checkServerIdentity = (_host: string, certificate: PeerCertificate): Error | undefined => {
    names = namesOf(certificate);
    if (publishers.some((entry) => names.includes(nameIn(entry)))) return undefined;
    return new Error(`a publisher with the names ${names.join()} may not push here; ${publishers.join()} may`);
  };
  const refuses = (dataset: string): Refusal | undefined => {
    const named = publishers.filter((entry) => names.includes(nameIn(entry)));
    if (named.some((entry) => ["", dataset].includes(datasetIn(entry)))) return undefined;
    const message = `a publisher with the names ${names.join()} may not push dataset ${dataset || "(none)"} here`;
    return [GoodbyeReason.NOT_ALLOWED, message, "add its certificate to the option `publishers`"];
  };
  const context = await secureContext(tls);
  return { credentials: credentials.createFromSecureContext(context, { checkServerIdentity }), refuses };
}

async function secureContext(files: TlsFiles): Promise<ReturnType<typeof createSecureContext>> {
  try {
    const names = ["ca", "cert", "key", "crl"] as const;
    const read = async (name: (typeof names)[number]): Promise<[string, Buffer] | undefined> => {
      const path = files[name];
      return path === undefined ? undefined : [name, await readFile(path)];
    };
    const found = await Promise.all(names.map(read));
    return createSecureContext(Object.fromEntries(found.filter((file) => file !== undefined)));
  } catch (error) {
    throw new ConfigError(`tls: ${String(error)}`, "mend the file that is named; it is read again for each connection");
  }
}

/** The common name and the DNS names of a certificate. */
export function namesOf({ subject, subjectaltname }: Pick<PeerCertificate, "subject" | "subjectaltname">): string[] {
  // Node quotes a name that has a comma, so that it is not mistaken for several.
  const entries = subjectaltname?.matchAll(/([\w ]+):("(?:[^"\\]|\\.)*"|[^,]*)(?:, |$)/gy) ?? [];
  const alternative = [...entries].filter(([, kind]) => kind === "DNS").map(([, , name]) => name ?? "");
  const common = (subject as Partial<typeof subject> | undefined)?.CN;
  return [...(typeof common === "string" ? [common] : []), ...alternative];
}

function nameIn(entry: string): string {
  return entry.slice(entry.lastIndexOf("=") + 1);
}

function datasetIn(entry: string): string {
  return entry.slice(0, Math.max(0, entry.lastIndexOf("=")));
}
