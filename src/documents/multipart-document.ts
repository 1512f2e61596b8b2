/** A document with its attachments behind it, as multipart/related; protocol.md 7.2. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import type { Settings } from '../core/types.ts'
import type { Staging } from './attachments.ts'
import type { Body } from './database.ts'
import { type IncomingDoc, readLeadingDocument } from './incoming.ts'
import type { FollowingAttachment } from './incoming-attachments.ts'
import { headerParameter, MultipartScanner, type Part } from './multipart.ts'
import { bodyLength, bodySteps, bodyText } from './request-body.ts'

/** Bytes looked through in one step. */
const SLICE = 256 * 1024

/** A document, and where in the request's body the contents lie that follow it. */
export interface LeadingDocument {
  /** Without the attachments that follow. */
  readonly doc: IncomingDoc
  readonly follows: readonly { readonly attachment: FollowingAttachment; readonly part: Part }[]
  /** The place of each attachment in the document's JSON, by name. */
  readonly places: ReadonlyMap<string, number>
}

/**
 * Finds the parts of a request's body and reads the first, the document. The others belong to its attachments that
 * say `follows`: by the file names in their headers where these are just the attachments' names, else by their order,
 * which is all that CouchDB goes by.
 * @throws bad_content_type unless the first part is JSON; bad_request for parts that are no multipart body, that are
 * too few or too many, or not as long as the document says; and as readDocument
 */
export async function readMultipart(
  body: Body,
  boundary: string,
  settings: Settings,
  address: string,
): Promise<LeadingDocument> {
  const [json, ...parts] = await findParts(body, boundary)
  const [type = ''] = (json?.headers.get('content-type') ?? '').split(';', 1)
  if (json === undefined || type.trim().toLowerCase() !== 'application/json') {
    throw new CouchError('bad_content_type')
  }
  const text = bodyText(body, json.start, json.end)
  const { doc, follows, names } = await readLeadingDocument(text, settings, address)
  const places = new Map(names.map((name, place) => [name, place]))
  // Hosted mode refuses the document for them; which part is whose is then of no interest.
  if (settings.rules.isHosted && doc.attachments.length > 0) return { doc, follows: [], places }
  const matched = matchParts(inOrder(follows, places), parts)
  for (const { attachment, part } of matched) checkLength(attachment, part)
  return { doc, follows: matched, places }
}

/** The document with all its attachments, those that followed it staged. @throws as {@link Staging.takeFollowing} */
export async function stageFollowing(
  { doc, follows, places }: LeadingDocument,
  body: Body,
  staging: Staging,
): Promise<IncomingDoc> {
  const attachments = [...doc.attachments]
  for (const { attachment, part } of follows) {
    attachments.push(await staging.takeFollowing(body, part, attachment))
  }
  return { ...doc, attachments: inOrder(attachments, places) }
}

/** The parts of a body that is multipart with this boundary. @throws bad_request */
export async function findParts(body: Body, boundary: string): Promise<readonly Part[]> {
  const scanner = new MultipartScanner(boundary)
  const breath = new Breath()
  for (const slice of bodySteps(body, 0, bodyLength(body), SLICE)) {
    scanner.push(slice)
    await breath.take()
  }
  return scanner.end()
}

function inOrder<T extends { readonly name: string }>(
  attachments: readonly T[],
  places: ReadonlyMap<string, number>,
): readonly T[] {
  return attachments.toSorted((a, b) => (places.get(a.name) ?? 0) - (places.get(b.name) ?? 0))
}

function matchParts(
  follows: readonly FollowingAttachment[],
  parts: readonly Part[],
): { attachment: FollowingAttachment; part: Part }[] {
  if (parts.length !== follows.length) {
    const told = `The document has ${follows.length} attachments that follow`
    throw new CouchError('bad_request', `${told}, and the multipart body has ${parts.length}.`)
  }
  const byName = new Map(parts.map((part) => [fileName(part), part]))
  const isNamed = follows.every(({ name }) => byName.has(name))
  return follows.map((attachment, at) => ({
    attachment,
    part: (isNamed ? byName.get(attachment.name) : parts[at]) as Part,
  }))
}

function fileName({ headers }: Part): string | undefined {
  return headerParameter(headers.get('content-disposition') ?? '', 'filename')
}

function checkLength({ storedLength }: FollowingAttachment, { start, end }: Part): void {
  if (storedLength === undefined || storedLength === end - start) return
  const isLonger = end - start > storedLength
  throw new CouchError('bad_request', `attachment ${isLonger ? 'longer' : 'shorter'} than expected`)
}
