/** When an answer is multipart: protocol.md 3.2, 4.2, 7.3. */
import t from 'tap'
import { bulkMultipart, wantsMultipart } from '../../src/http/header-values.ts'

t.test('a document is multipart only for who names the type', async (t) => {
  const cases: [accept: string | undefined, expected: boolean][] = [
    [undefined, false],
    ['', false],
    ['*/*', false],
    ['multipart/*', false],
    ['application/json', false],
    ['multipart/mixed', false],
    ['multipart/related', true],
    ['Multipart/Related;type="application/json"', true],
    ['multipart/related,*/*;', true],
    ['multipart/related, application/json', true],
    ['application/json, multipart/related', true],
    ['application/json;q=0.5, multipart/related', true],
    ['application/json, multipart/related;q=0.9', false],
    ['multipart/related;q=0', false],
    ['multipart/related; q=x', false],
  ]
  for (const [accept, expected] of cases) {
    t.equal(wantsMultipart(accept, 'multipart/related'), expected, String(accept))
  }
  t.equal(wantsMultipart('multipart/mixed', 'multipart/mixed'), true)
  t.equal(wantsMultipart('multipart/related,*/*', 'multipart/mixed'), true, 'as CouchDB replicates')
  t.equal(wantsMultipart('multipart/related', 'multipart/mixed'), false)
  t.equal(wantsMultipart('multipart/related,*/*;q=0', 'multipart/mixed'), false)
})

t.test('_bulk_get is multipart only for who rules out JSON', async (t) => {
  const cases: [accept: string | undefined, expected: ReturnType<typeof bulkMultipart>][] = [
    [undefined, null],
    ['*/*', null],
    ['text/html', null],
    ['multipart/mixed', 'multipart/mixed'],
    ['multipart/related', 'multipart/related'],
    ['multipart/related, multipart/mixed', 'multipart/mixed'],
    ['multipart/*', 'multipart/mixed'],
    ['multipart/mixed, application/json;q=0.1', null],
    ['multipart/mixed, application/*', null],
    ['multipart/mixed, */*', null],
    ['multipart/mixed, application/json;q=0, */*', 'multipart/mixed'],
    ['multipart/mixed;q=0, multipart/related', 'multipart/related'],
  ]
  for (const [accept, expected] of cases) t.equal(bulkMultipart(accept), expected, String(accept))
})
