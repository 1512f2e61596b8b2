/** The rows of the surface tests over HTTP/2 and settee's own TLS: the answers are the same. */
import t, { type Test } from 'tap'
import { certificateFiles } from '../../helpers/certificates.ts'
import { startTestServer } from '../../helpers/server.ts'
import type { Answer } from '../../surface/answers.ts'
import { rows as calls } from '../../surface/attachment-calls.rows.ts'
import { rows as ranges } from '../../surface/attachment-ranges.rows.ts'
import { rows as forms } from '../../surface/attachments.rows.ts'
import { BULK_DOCS } from '../../surface/bulk-docs.rows.ts'
import { BULK_GET_AND_DIFF } from '../../surface/bulk-get-and-diff.rows.ts'
import { rows as framing } from '../../surface/changes-rows.rows.ts'
import { rows as waiting } from '../../surface/changes-waiting.rows.ts'
import { DATABASE } from '../../surface/database.rows.ts'
import { ETAG } from '../../surface/etag.rows.ts'
import { GET } from '../../surface/get.rows.ts'
import { LISTS } from '../../surface/lists.rows.ts'
import { LOCAL_AND_HEADERS } from '../../surface/local-and-headers.rows.ts'
import { rows as multipart } from '../../surface/multipart.rows.ts'
import { PUT } from '../../surface/put.rows.ts'
import { REMOVE_POST_COPY } from '../../surface/remove-post-copy.rows.ts'
import { type Ask, type Listening, type Row, runTable } from '../../surface/table.ts'

async function overHttp2(t: Pick<Test, 'teardown'>): Promise<Listening> {
  const tls = await certificateFiles(t)
  const { secureUrl } = await startTestServer(t, { tls })
  return {
    url: secureUrl,
    connection: { allowH2: true, connect: { ca: tls.cert, checkServerIdentity: () => undefined } },
  }
}

/** URLs begin with https, and there are no chunks. */
function answered(answer: Answer): Answer {
  const headers = Object.entries(answer.headers ?? {})
    .filter(([name]) => name !== 'transfer-encoding')
    .map(([name, value]) => [name, name === 'location' ? overTls(value) : value])
  return { ...answer, headers: Object.fromEntries(headers) }
}

function overTls(location: string | RegExp | undefined): string | RegExp | undefined {
  if (typeof location === 'string') return location.replace('http:', 'https:')
  return location && new RegExp(location.source.replace('http:', 'https:'))
}

function row({ answer, steps, ...rest }: Row): Row {
  return {
    ...rest,
    ...(answer && { answer: answered(answer) }),
    ...(steps && { steps: steps.map(([ask, expected]) => [ask, answered(expected)] as const) }),
  }
}

/** Rows about a proxy's headers are left out: with TLS, the proxy cannot claim a client without TLS. */
function isOfProxy({ ask, steps = [], given = [] }: Row): boolean {
  const asks: Ask[] = [...given, ...steps.map(([each]) => each), ...(ask === undefined ? [] : [ask])]
  return asks.some((each) => JSON.stringify(each).toLowerCase().includes('x-forwarded-'))
}

const run = (t: Test, rows: readonly Row[]) =>
  runTable(t, rows.filter((each) => !isOfProxy(each)).map(row), overHttp2)

t.test('documents', async (t) => run(t, [...GET, ...ETAG, ...PUT, ...REMOVE_POST_COPY]))
t.test('_local documents and headers', async (t) => run(t, LOCAL_AND_HEADERS))
t.test('many documents', async (t) => run(t, [...BULK_DOCS, ...BULK_GET_AND_DIFF, ...LISTS]))
t.test('attachments', async (t) => run(t, [...forms, ...multipart, ...calls, ...ranges]))
t.test('feeds', async (t) => run(t, [...framing, ...waiting]))
t.test('databases', async (t) => run(t, DATABASE))
