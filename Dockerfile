# settee in a container: docker build --tag settee . &&
#   docker run --detach --read-only --publish 5984:5984 --volume settee-data:/data settee
# It writes only to /data, and runs as any account. compose.yaml runs it behind Caddy.

FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY console/package.json console/
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY src src
COPY console console
RUN npm run build
RUN npm prune --omit=dev
# A new volume on /data starts as a copy of this folder, which any account may write to: --user 1234 works, too.
RUN mkdir data

FROM node:24-slim
ENV NODE_ENV=production SETTEE_BIND=0.0.0.0 SETTEE_DATA=/data
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY --from=build --chown=node:node --chmod=777 /app/data /data
USER node
VOLUME /data
EXPOSE 5984
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.SETTEE_PORT || 5984}/_up`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# No shell, so that SIGTERM reaches the server.
ENTRYPOINT ["node", "dist/cli/main.js"]
CMD ["serve"]
