# The worker and the read API in one image; the command says which. The sources run as they are.
FROM node:24-slim

ENV NODE_ENV=production
WORKDIR /app

# First what seldom changes, so that a change of the sources reuses the layer. The image has its Node already.
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts && npm cache clean --force && rm -rf node_modules/node-linux-*

COPY LICENSE ./
COPY bin ./bin
COPY migrations ./migrations
COPY jobs ./jobs
COPY src ./src

# Spool files, and the embedded parts where nothing else is configured.
RUN mkdir /data && chown node:node /data
ENV DATA_DIR=/data
# As the first line of bin/ledger-mirror.js.
ENV MALLOC_ARENA_MAX=2
VOLUME /data

USER node
EXPOSE 8080
ENTRYPOINT ["node", "--max-semi-space-size=4", "bin/ledger-mirror.js"]
CMD ["up"]
