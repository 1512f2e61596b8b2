import t from 'tap'
import { attachmentKind } from '../../console/src/screens/documents/attachment-kind.ts'

t.test('what a browser would run is shown as text', async (t) => {
  for (const type of [
    'text/html',
    'TEXT/HTML; charset=utf-8',
    'image/svg+xml',
    'application/xhtml+xml',
    'text/javascript',
  ])
    t.equal(attachmentKind(type, 'x.png'), 'text', type)
  t.equal(attachmentKind('application/octet-stream', 'page.svg'), 'text')
  t.equal(attachmentKind('application/pdf', 'x.pdf'), 'other')
  t.equal(attachmentKind('', 'x.bin'), 'other')
})

t.test('pictures, sound and film are shown by their type, not by their name', async (t) => {
  t.equal(attachmentKind('image/png', 'x.html'), 'image')
  t.equal(attachmentKind('IMAGE/JPEG; x=y', 'x'), 'image')
  t.equal(attachmentKind('audio/mpeg', 'x'), 'audio')
  t.equal(attachmentKind('video/mp4', 'x'), 'video')
  t.equal(attachmentKind('application/octet-stream', 'x.png'), 'other')
})
