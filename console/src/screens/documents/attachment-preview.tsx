import { useState } from 'preact/hooks'
import { failureOf } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Dialog } from '../../parts/dialog.tsx'
import { Icon } from '../../parts/icon.tsx'
import { ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'
import { bytes } from '../../strings/format.ts'
import { attachmentKind } from './attachment-kind.ts'
import type { Attachment } from './document-text.ts'

const { documents: texts } = en

/** Bytes of a text that are shown. */
const SHOWN_BYTES = 200_000

interface AttachmentPreviewProps {
  readonly attachment: Attachment
  readonly address: string
  readonly onClose: () => void
}

export function AttachmentPreview({ attachment, address, onClose }: AttachmentPreviewProps) {
  const { name, type, length } = attachment
  const footer = (
    <a class="button is-primary" href={address} download={name.split('/').at(-1)}>
      <Icon name="download" />
      <span>{texts.downloadSize(bytes(length))}</span>
    </a>
  )
  return (
    <Dialog title={name} footer={footer} isWide onClose={onClose}>
      <p class="fine">{type}</p>
      <Content attachment={attachment} address={address} />
    </Dialog>
  )
}

function Content({ attachment: { name, type, length }, address }: Omit<AttachmentPreviewProps, 'onClose'>) {
  const [isBroken, setBroken] = useState(false)
  const kind = attachmentKind(type, name)
  if (isBroken || kind === 'other') {
    return <Notice tone="info">{isBroken ? texts.previewBroken : texts.noPreview}</Notice>
  }
  const onError = () => setBroken(true)
  if (kind === 'image') return <img class="preview" src={address} alt={name} onError={onError} />
  // Captions of somebody's recordings are not known.
  if (kind === 'audio') {
    // biome-ignore lint/a11y/useMediaCaption: see above
    return <audio class="preview" src={address} controls aria-label={name} onError={onError} />
  }
  if (kind === 'video') {
    // biome-ignore lint/a11y/useMediaCaption: see above
    return <video class="preview" src={address} controls aria-label={name} onError={onError} />
  }
  return <TextContent address={address} length={length} />
}

function TextContent({ address, length }: { readonly address: string; readonly length: number }) {
  const { data, failure, reload } = useLoad((signal) => readStart(address, signal), address)
  if (failure !== null) return <ErrorNotice failure={failure} onRetry={reload} />
  if (data === undefined) return <Skeleton lines={6} />
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard */}
      <section class="preview is-text" tabIndex={0} aria-label={texts.previewText}>
        <pre>{data}</pre>
      </section>
      {length > SHOWN_BYTES && <p class="fine">{texts.previewCut(bytes(SHOWN_BYTES))}</p>}
    </>
  )
}

/** @returns the first bytes as text */
async function readStart(address: string, signal: AbortSignal): Promise<string> {
  const answer = await fetch(address, { headers: { Range: `bytes=0-${SHOWN_BYTES - 1}` }, signal })
  if (!answer.ok) throw failureOf(answer, await answer.text())
  return readAtMost(answer, SHOWN_BYTES)
}

/** Reads no further, since an encoded attachment is not sent in parts. */
async function readAtMost(answer: Response, most: number): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  let read = 0
  for await (const piece of answer.body as unknown as AsyncIterable<Uint8Array>) {
    const kept = piece.subarray(0, most - read)
    read += kept.length
    text += decoder.decode(kept, { stream: true })
    if (read >= most) break
  }
  return text + decoder.decode()
}
