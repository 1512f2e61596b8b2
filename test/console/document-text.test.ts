import t from 'tap'
import {
  documentText,
  openDocument,
  reservedMember,
} from '../../console/src/screens/documents/document-text.ts'

const STUB = '{"a b.png":{"content_type":"image/png","revpos":2,"digest":"md5-x==","length":12,"stub":true}}'
const STORED = `{"_id":"note:1","_rev":"2-b","n":9007199254740993,"x":1e400,"_attachments":${STUB},"_conflicts":["2-a"],"y":-0,"_revs_info":[{"rev":"2-b","status":"available"}]}`

t.test('a document is opened and saved without a change to its own members', async (t) => {
  const open = openDocument(STORED)
  t.match(open, {
    id: 'note:1',
    rev: '2-b',
    isDeleted: false,
    attachments: [{ name: 'a b.png', type: 'image/png', length: 12, revpos: 2 }],
    conflicts: ['2-a'],
    deletedConflicts: [],
    history: [{ rev: '2-b', status: 'available' }],
  })
  t.equal(open.body, '{\n  "n": 9007199254740993,\n  "x": 1e400,\n  "y": -0\n}')
  const saved = documentText(open.body, { rev: open.rev, attachmentsText: open.attachmentsText })
  t.equal(saved, `{"_rev":"2-b","_attachments":${STUB},"n": 9007199254740993,"x": 1e400,"y": -0}`)
  t.equal(documentText(' { } ', { id: 'é"', rev: null, attachmentsText: null }), '{"_id":"é\\""}')
})

t.test('members that belong to the server are found', async (t) => {
  t.same(reservedMember('{"a":{"_x":1},"\\u005frev":"1-a"}'), { name: '_rev', at: 14 })
  t.equal(reservedMember('{"a":{"_x":1}}'), null)
})
