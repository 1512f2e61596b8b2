/** How an attachment is shown. What a browser would run, such as HTML and SVG, is shown as text only. */

export type AttachmentKind = 'image' | 'audio' | 'video' | 'text' | 'other'

const IMAGES = /^image\/(?:png|jpe?g|gif|webp|avif|bmp|x-icon|vnd\.microsoft\.icon)$/
const AUDIO = /^audio\//
const VIDEO = /^video\//
const TEXT =
  /^(?:text\/|application\/(?:json|xml|javascript|ecmascript|x-sh|x-yaml|yaml|toml|sql|x-ndjson|.*\+(?:json|xml))|image\/svg\+xml)/
const TEXT_NAME = /\.(?:txt|md|markdown|json|csv|tsv|log|ya?ml|toml|xml|html?|svg|css|m?[jt]sx?|sh|sql|ini)$/i

/** @param type the attachment's media type, as the one who sent it has named it */
export function attachmentKind(type: string, name: string): AttachmentKind {
  const plain = type.toLowerCase().split(';', 1)[0]?.trim() ?? ''
  if (IMAGES.test(plain)) return 'image'
  if (AUDIO.test(plain)) return 'audio'
  if (VIDEO.test(plain)) return 'video'
  if (TEXT.test(plain)) return 'text'
  const isUnnamed = plain === '' || plain === 'application/octet-stream'
  return isUnnamed && TEXT_NAME.test(name) ? 'text' : 'other'
}
