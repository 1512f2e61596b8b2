/** Who gets what of single documents and their attachments. */
import {
  type Columns,
  databaseAdmins,
  everybody,
  hostedIs,
  members,
  type Row,
  type Rows,
  type Sent,
  type Statuses,
} from './matrix.ts'

const DOCUMENT: Sent = { body: '{}' }
const FILE: Sent = { body: 'text', headers: { 'Content-Type': 'text/plain' } }
/** Hosted mode has no design documents, and no attachments. */
const forDesigns = (status: number) => hostedIs(databaseAdmins, { status, hosted: 403 })
const forFiles = (status: number) => hostedIs(members, { status, hosted: 403 })

/** In the database of `o`. */
function ofO(status: number): Statuses {
  const columns: Columns = [401, status, 403, 403, status]
  return { open: everybody(status), secured: columns, hosted: [401, status, 404, 404, status] }
}

function copyTo(target: string): Sent {
  return { headers: { Destination: target } }
}

function form(doc: string): Sent {
  const type = 'multipart/form-data; boundary=b'
  return {
    body: `--b\r\nContent-Disposition: form-data; name="_doc"\r\n\r\n${doc}\r\n--b--\r\n`,
    headers: { 'Content-Type': type, Referer: '{url}/' },
  }
}

function anyMethod(path: string, status: number): readonly Row[] {
  return ['GET', 'POST', 'PUT', 'COPY', 'DELETE'].map((method) => [`${method} ${path}`, members(status)])
}

export const documentRows: Rows = {
  '/:db/:docid': [
    ['GET /{db}/doc', members(200)],
    ['GET /{db}/missing', members(404)],
    ['GET /{db}/doc?open_revs=all', members(200)],
    ['PUT /{db}/put-{n}', members(201), DOCUMENT],
    ['PUT /{db}/put-{n}?new_edits=false', members(201), { body: '{"_rev":"1-x"}' }],
    ['PUT /{db}/{doc}?rev={rev}', members(201), DOCUMENT],
    ['DELETE /{db}/{doc}?rev={rev}', members(200)],
    ['COPY /{db}/doc', members(201), copyTo('copy-{n}')],
    ['COPY /{db}/doc', members(201), copyTo('_local/copy-{n}')],
    ['COPY /{db}/doc', forDesigns(201), copyTo('_design/copy-{n}')],
    // A database is no part of where a copy goes.
    ['COPY /{others}/doc', ofO(201), copyTo('..%2F{db}%2Fcopy-{n}')],
    ['POST /{db}/form-{n}', members(201), form('{}')],
    ['GET /{db}/_local%2Fl', members(200)],
    ['PUT /{db}/_local%2Fput-{n}', members(201), DOCUMENT],
  ],
  '/:db/_design/:ddoc': [
    ['GET /{db}/_design/d', hostedIs(members, { status: 200, hosted: 404 })],
    ['PUT /{db}/_design/put-{n}', forDesigns(201), DOCUMENT],
    ['PUT /{db}/_design%2Fput-{n}', forDesigns(201), DOCUMENT],
    ['DELETE /{db}/_design/{ddoc}?rev={rev}', forDesigns(200)],
    ['COPY /{db}/_design/d', hostedIs(members, { status: 201, hosted: 404 }), copyTo('copy-{n}')],
    ['POST /{db}/_design/form-{n}', forDesigns(201), form('{}')],
  ],
  '/:db/_local/:local': [
    ['GET /{db}/_local/l', members(200)],
    ['PUT /{db}/_local/put-{n}', members(201), DOCUMENT],
    ['DELETE /{db}/_local/{local}', members(200)],
    ['COPY /{db}/_local/l', members(201), copyTo('copy-{n}')],
    // It would have a revision like other documents.
    ['POST /{db}/_local/form-{n}', members(400), form('{}')],
  ],
  '/:db/_local/:local/*': anyMethod('/{db}/_local/l/a', 400),
  '/:db/:docid/*': [
    ['GET /{db}/doc/a', hostedIs(members, { status: 200, hosted: 404 })],
    ['PUT /{db}/of-{n}/a', forFiles(201), FILE],
    ['DELETE /{db}/{doc}/a?rev={rev}', forFiles(200)],
  ],
  '/:db/_design/:ddoc/*': [
    ['GET /{db}/_design/d/a', hostedIs(members, { status: 200, hosted: 404 })],
    ['PUT /{db}/_design/of-{n}/a', forDesigns(201), FILE],
    ['DELETE /{db}/_design/{ddoc}/a?rev={rev}', forDesigns(200)],
  ],
  '/:db/_design/:ddoc/_*': anyMethod('/{db}/_design/d/_nothing', 404),
}
