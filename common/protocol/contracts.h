/* The ways in which programs that exist find the other ranks of their job (--rendezvous), as bits of
 * Spawn.contracts. */
#pragma once

enum contract {
    CONTRACT_ENV = 1,       /* torch's env://: MASTER_ADDR and its like */
    CONTRACT_PMIX = 2,      /* a PMIx server, from its first client on */
    CONTRACT_PMI1 = 4,      /* PMI-1, MPICH's */
    CONTRACT_GLOO = 8,      /* the HTTP key-value store of stock Horovod */
    CONTRACT_PMIX_NOW = 16, /* with CONTRACT_PMIX: the server is there before the workers */
    CONTRACT_TF = 32,       /* TF_CONFIG of TensorFlow */
    CONTRACT_PADDLE = 64,   /* PADDLE_* of PaddlePaddle */
    CONTRACT_JAX = 128,     /* JAX_* of jax.distributed */
    CONTRACT_NO_MPI = 256   /* programs of MPI or PMIx are refused: the job is elastic */
};

/* Each rank has a port, and every rank is told all of them: as much environment as there are pairs of ranks.
 * So these are offered only on request. */
#define CONTRACTS_ENDPOINTS (CONTRACT_TF | CONTRACT_PADDLE)
#define CONTRACTS_AUTO      (CONTRACT_ENV | CONTRACT_PMIX | CONTRACT_PMI1 | CONTRACT_GLOO | CONTRACT_JAX)
