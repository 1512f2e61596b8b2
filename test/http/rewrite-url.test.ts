import type { IncomingMessage } from 'node:http'
import t from 'tap'
import { rewriteUrl } from '../../src/app.ts'

function rewrite(url: string, method = 'GET', headers: Record<string, string> = {}) {
  const request = { url, method, headers } as unknown as IncomingMessage
  return { url: rewriteUrl(request), method: request.method }
}

t.test('paths come into one form; queries stay as they are', async (t) => {
  const cases: [sent: string, expected: string][] = [
    ['/', '/'],
    ['//', '/'],
    ['/db', '/db'],
    ['/db/', '/db'],
    ['/db//', '/db'],
    ['//db///doc//', '/db/doc'],
    ['/db/a+b?key=a+b', '/db/a%20b?key=a+b'],
    ['/db/a%2Bb', '/db/a%2Bb'],
    ['/db/%2F%2F', '/db/%2F%2F'],
    ['/db/_design%2Fd', '/db/_design/d'],
    ['/db/_design%2fa%2Fb/', '/db/_design/a%2Fb'],
    ['//db/_design%2Fd/_view/v?key="_design%2Fd"', '/db/_design/d/_view/v?key="_design%2Fd"'],
    ['/db/_design%2F', '/db/_design%2F'],
    ['/db/doc/_design%2Fd', '/db/doc/_design%2Fd'],
    ['/db/_local%2Fl', '/db/_local%2Fl'],
    ['/db/?a=//b/', '/db?a=//b/'],
    ['/db?', '/db?'],
    ['?a=1', '/?a=1'],
    ['http://anna:secret@host:5984/db/doc?x=1', '/db/doc?x=1'],
    ['http://host', '/'],
    ['*', '*'],
  ]
  for (const [sent, expected] of cases) t.equal(rewrite(sent).url, expected, sent)
})

t.test('a POST may name another method', async (t) => {
  const header = { 'x-http-method-override': 'PUT' }
  t.equal(rewrite('/db', 'POST', header).method, 'PUT')
  t.equal(rewrite('/db', 'GET', header).method, 'GET')
  t.equal(rewrite('/db', 'POST', { 'x-http-method-override': 'put' }).method, 'POST')
  t.equal(rewrite('/db', 'POST', { 'x-http-method-override': 'PROPFIND' }).method, 'POST')
  t.equal(rewrite('/db', 'PUT', { 'x-http-method-override': 'DELETE' }).method, 'PUT')
  for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT', 'COPY']) {
    t.equal(rewrite('/db', 'POST', { 'x-http-method-override': method }).method, method)
  }
  t.equal(rewrite('/db', 'POST', { 'x-http-method-override': 'HEAD' }).method, 'GET', 'whose body is read')
})
