import { en } from '../strings/en.ts'

/** The name with the small couch. @param href where it leads; absent: nowhere */
export function Brand({ href }: { readonly href?: string }) {
  const content = (
    <>
      <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
        <rect width="32" height="32" rx="8" />
        <path d="M9 15v-3a3 3 0 0 1 3-3h8a3 3 0 0 1 3 3v3M6 15.5A2.5 2.5 0 0 1 11 16v2h10v-2a2.5 2.5 0 0 1 5-.5V22a1.5 1.5 0 0 1-1.5 1.5h-17A1.5 1.5 0 0 1 6 22z" />
      </svg>
      {en.shell.brand}
    </>
  )
  return href === undefined ? (
    <p class="brand">{content}</p>
  ) : (
    <a class="brand" href={href}>
      {content}
    </a>
  )
}
